/** Formatting of numbers. */
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const rate = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

export const count = (n: number) => whole.format(n);

const small = new Intl.NumberFormat('en', { maximumSignificantDigits: 2, maximumFractionDigits: 3, roundingPriority: 'lessPrecision' });

/** A short format for axes and tiles: 0.123 is "0.12", 1.25 is "1.3", 123.4 is "123", 12345 is "12.3K". */
export const short = (n: number) => (Math.abs(n) < 1 ? small : Math.abs(n) < 100 ? rate : Math.abs(n) < 10_000 ? whole : compact).format(n);

/** A number with its noun: "1 device", "2 devices". */
export const plural = (n: number, noun: string, many = `${noun}s`) => `${count(n)} ${n === 1 ? noun : many}`;

/** A share (0 to 1) as a percentage. */
export const percent = (share: number) => `${rate.format(share * 100)} %`;
