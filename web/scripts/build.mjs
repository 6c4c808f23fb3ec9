// Builds every console: each folder here that holds an index.html.
import { execFileSync } from 'node:child_process';
import { consoles, web } from './consoles.mjs';

for (const app of consoles()) {
  execFileSync('npx', ['vite', 'build'], { cwd: web, stdio: 'inherit', env: { ...process.env, APP: app } });
}
