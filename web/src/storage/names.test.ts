import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Job } from './api';
import { jobKinds, jobTitle, osdOf, resourceName } from './names';

const names = new Map([['0193b3f0-0000-7000-8000-00000000000a', 'data']]);
const about = (type: Job['resource']['type'], id: string) => ({ type, id });

describe('what a job is about', () => {
  it('is a name where there is one, or else the end of the id', () => {
    expect(resourceName(about('volume', '0193b3f0-0000-7000-8000-00000000000a'), names)).toBe('data');
    expect(resourceName(about('snapshot', '0193b3f0-0000-7000-8000-00001234abcd'), names)).toBe('snapshot …1234abcd');
    expect(resourceName(about('osd', 'c1/3'), names)).toBe('OSD 3');
  });

  it('is in its title, also of a kind that is not known here', () => {
    expect(jobTitle({ kind: 'volume.expand', resource: about('volume', '0193b3f0-0000-7000-8000-00000000000a') }, names)).toBe('Expand data');
    expect(jobTitle({ kind: 'osd.out', resource: about('osd', 'c1/3') }, names)).toBe('Take out OSD 3');
    expect(jobTitle({ kind: 'bucket.create', resource: about('bucket', 'b1') }, names)).toBe('Create the bucket b1');
    expect(jobTitle({ kind: 'trash.empty', resource: about('trash', 't1') }, names)).toBe('trash.empty trash t1');
  });
});

it('an OSD is its cluster and its number, as jobs and as alerts write them', () => {
  expect(osdOf('c1/3')).toEqual({ cluster: 'c1', number: '3' });
  expect(osdOf('c1:3')).toEqual({ cluster: 'c1', number: '3' });
  expect(osdOf('c1')).toBeUndefined();
});

it('every kind of job that the service has is known', () => {
  const source = readFileSync(join(import.meta.dirname, '../../../service/storage/record/job.go'), 'utf8');
  const served = [...source.matchAll(/^\tJob\w+ += "([^"]+)"/gm)].map((m) => m[1]);
  expect(served.length).toBeGreaterThan(30);
  expect([...jobKinds].sort()).toEqual(served.sort());
});
