/** Months in UTC, and money. */

const names = new Intl.DateTimeFormat('en', { month: 'long', year: 'numeric', timeZone: 'UTC' });

/** “2026-11” is “November 2026”. */
export const monthOf = (month: string) => names.format(new Date(`${month}-01T00:00:00Z`));

/** The newest months, the present one first, as “2026-11”. */
export const months = (now: Date, most: number) => Array.from({ length: most }, (_, i) => new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - i)).toISOString().slice(0, 7));

/** When a month begins and ends. The present one ends now: the API leaves that out. */
export function span(month: string, now: Date): { from: string; to?: string } {
  const first = new Date(`${month}-01T00:00:00Z`);
  const end = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1));
  return { from: first.toISOString(), ...(end <= now && { to: end.toISOString() }) };
}

/** An amount in a currency, which may be one that the browser does not know. */
export function money(amount: number, currency: string): string {
  try {
    return new Intl.NumberFormat('en', { style: 'currency', currency, currencyDisplay: 'code' }).format(amount);
  } catch {
    return `${amount} ${currency}`.trim();
  }
}
