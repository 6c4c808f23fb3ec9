/** Formatting of sizes and times of VMs. */
import { duration } from '../ui/time';
import type { VM } from './api';

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
