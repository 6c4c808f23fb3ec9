// Prints what the first page of each console loads, compressed as it is sent,
// and fails when that is more than the limit.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { consoles, web } from './consoles.mjs';

const limit = 300 * 1024;

for (const app of consoles()) {
  const dist = join(web, 'dist', app);
  const manifest = JSON.parse(readFileSync(join(dist, '.vite/manifest.json'), 'utf8'));
  const files = new Set(['index.html']);
  const visit = (key) => {
    const chunk = manifest[key];
    if (files.has(chunk.file)) return;
    files.add(chunk.file);
    for (const css of chunk.css ?? []) files.add(css);
    for (const next of chunk.imports ?? []) visit(next);
  };
  Object.keys(manifest).filter((key) => manifest[key].isEntry).forEach(visit);

  let total = 0;
  for (const file of files) {
    const raw = readFileSync(join(dist, file));
    const size = gzipSync(raw, { level: 9 }).length;
    total += size;
    console.log(`${app}  ${(size / 1024).toFixed(1).padStart(7)} KB  (${(raw.length / 1024).toFixed(1)} KB raw)  ${file}`);
  }
  console.log(`${app}  ${(total / 1024).toFixed(1).padStart(7)} KB  in all, of ${limit / 1024} KB allowed`);
  if (total > limit) process.exitCode = 1;
}
