/** What images are, in words. */
import type { Image, ImageDownload } from '../api';

const distributions: Record<string, string> = { alma: 'AlmaLinux', arch: 'Arch Linux', centos: 'CentOS Stream', debian: 'Debian', fedora: 'Fedora', opensuse: 'openSUSE', rocky: 'Rocky Linux', ubuntu: 'Ubuntu' };

export const distributionName = (id: string) => distributions[id] ?? id;

/** For a choice, in the order of their names. */
export const distributionOptions = (ids: readonly string[]) => ids.map((value) => ({ value, label: distributionName(value) })).sort((a, b) => a.label.localeCompare(b.label));

/** Where an image comes from, as in “built of Debian 12”. Only builds are known to have the guest agent. */
export function originText(i: Pick<Image, 'distribution' | 'version' | 'agent'>): string {
  if (!i.distribution) return 'imported';
  return `${i.agent ? 'built of' : 'downloaded,'} ${distributionName(i.distribution)}${i.version ? ` ${i.version}` : ''}`;
}

/** A download in one word, for a choice. */
export const downloadKey = (d: Pick<ImageDownload, 'distribution' | 'version' | 'format'>) => `${d.distribution}/${d.version}/${d.format}`;
