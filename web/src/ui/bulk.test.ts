import { describe, expect, it } from 'vitest';
import { runAll } from './bulk';

describe('runAll', () => {
  it('runs a few at a time, and ends after those under way when it is told to', async () => {
    const abort = new AbortController();
    const finish: (() => void)[] = [];
    const ended = runAll([1, 2, 3, 4, 5, 6, 7], () => new Promise<void>((done) => finish.push(done)), abort.signal, () => undefined);
    expect(finish).toHaveLength(4);
    abort.abort();
    for (const done of finish) done();
    expect(await ended).toEqual({ done: 4, failed: [] });
    expect(finish).toHaveLength(4);
  });

  it('goes on after a failure, and keeps its reason', async () => {
    const seen: number[] = [];
    const outcome = await runAll([1, 2, 3], (n) => (n === 2 ? Promise.reject(new Error('no')) : Promise.resolve()), new AbortController().signal, (o) => seen.push(o.done + o.failed.length));
    expect(outcome).toEqual({ done: 2, failed: [{ row: 2, why: 'no' }] });
    expect(seen).toEqual([1, 2, 3]);
  });
});
