/** Paths in a volume of a backup. */

/** The path of an entry of a folder. */
export const inFolder = (folder: string, name: string): string => `${folder.replace(/\/+$/, '')}/${name}`;

/** The folders above a path and itself, from the root of the volume. */
export function parents(path: string): { name: string; path: string }[] {
  const out = [{ name: '/', path: '/' }];
  for (const name of path.split('/').filter(Boolean)) out.push({ name: `${name}/`, path: inFolder(out.at(-1)?.path ?? '/', name) });
  return out;
}
