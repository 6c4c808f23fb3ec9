/** Formatting of sizes, times and limits of VMs. */
import { duration } from '../ui/time';
import type { NetworkLimits, VM } from './api';

/** How long the VM has been up, or an empty text while it is down. */
export function uptime(vm: Pick<VM, 'state' | 'started_at'>, now: number): string {
  if (!vm.started_at || (vm.state !== 'running' && vm.state !== 'paused')) return '';
  return duration(Math.max(0, (now - Date.parse(vm.started_at)) / 1000));
}

/** The free part of a resource, at least 0. If more was given than exists, the note says how much. */
export function left(all: number, free: number, text: (n: number) => string): { value: string; note: string; bad: boolean } {
  const over = free < 0;
  return { value: text(Math.max(0, free)), note: over ? `overcommitted: ${text(all - free)} given of ${text(all)}` : `of ${text(all)}`, bad: over };
}

/** The used part of a resource. It can be more than the total. */
export function given(all: number, free: number): { used: number; share: number; over: boolean } {
  const used = all - free;
  return { used, share: all > 0 ? Math.min(1, Math.max(0, used / all)) : 0, over: used > all };
}

const bitUnits = ['bit', 'kbit', 'Mbit', 'Gbit'];
const bitDigits = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

/** 1500000 is "1.5 Mbit/s". */
export function bits(n: number): string {
  let i = 0;
  for (; n >= 999.95 && i < bitUnits.length - 1; i++) n /= 1000;
  return `${bitDigits.format(n)} ${bitUnits[i]}/s`;
}

/** What a guest may receive and send, or an empty text if that has no limits. */
export function networkLimits({ receive_bits_per_second: receive = 0, send_bits_per_second: send = 0 }: NetworkLimits): string {
  return [receive > 0 && `receives at most ${bits(receive)}`, send > 0 && `sends at most ${bits(send)}`].filter(Boolean).join(', ');
}
