/** What a storage system can do, in words. */
import type { Capabilities } from '../api';

const texts: Record<keyof Capabilities, string> = {
  block: 'block volumes',
  file: 'volumes for files',
  object: 'buckets',
  snapshots: 'snapshots',
  clone: 'clones',
  expansion: 'expansion',
  replication: 'copies in another cluster',
};

/** What it can, and what it cannot, each in the contract's order. */
export function abilities(c: Capabilities): { can: string[]; cannot: string[] } {
  const all = Object.keys(texts) as (keyof Capabilities)[];
  const of = (value: boolean) => all.filter((name) => c[name] === value).map((name) => texts[name]);
  return { can: of(true), cannot: of(false) };
}
