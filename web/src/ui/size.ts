/** Formatting of sizes of memory and disks. */
const digits = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const steps = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** 1536 is "1.5 KiB". */
export function bytes(n: number): string {
  let i = 0;
  for (; Math.abs(n) >= 1023.95 && i < steps.length - 1; i++) n /= 1024;
  return `${digits.format(n)} ${steps[i]}`;
}

/** 1536 MiB is "1.5 GiB". */
export const mib = (n: number) => bytes(n * 2 ** 20);
