// Which consoles there are: the folders beside package.json with an index.html.
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const web = dirname(dirname(fileURLToPath(import.meta.url)));

export function consoles() {
  return readdirSync(web, { withFileTypes: true })
    .filter((d) => d.isDirectory() && !['dist', 'node_modules'].includes(d.name) && existsSync(join(web, d.name, 'index.html')))
    .map((d) => d.name);
}
