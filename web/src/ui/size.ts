/** Formatting of sizes of memory and disks. */
const digits = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const steps = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** 1536 is "1.5 KiB". */
export function bytes(n: number): string {
  let i = 0;
  for (; Math.abs(n) >= 1023.95 && i < steps.length - 1; i++) n /= 1024;
  return `${digits.format(n)} ${steps[i]}`;
}

const powers: Record<string, number> = { '': 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40, P: 2 ** 50 };

/**
 * The bytes of a size as people write it: `10 GiB`, `500M`, `1.5 tb`. All units are powers of 1024, as on
 * the command line. A number alone is undefined, since nobody means bytes by 10; so is what is not a size.
 */
export function parseSize(text: string): number | undefined {
  const found = /^(\d+(?:\.\d+)?)\s*(?:([KMGTP])(?:iB|B)?|B)$/i.exec(text.trim());
  const unit = powers[found?.[2]?.toUpperCase() ?? ''];
  const size = found && unit ? Math.round(Number(found[1]) * unit) : 0;
  return Number.isSafeInteger(size) && size > 0 ? size : undefined;
}

/** A size as it is written exactly: in the largest unit that divides it. parseSize reads it back. */
export function exactSize(n: number): string {
  let i = 0;
  for (; n > 0 && n % 1024 === 0 && i < steps.length - 1; i++) n /= 1024;
  return `${n} ${steps[i]}`;
}

/** 1536 MiB is "1.5 GiB". */
export const mib = (n: number) => bytes(n * 2 ** 20);
