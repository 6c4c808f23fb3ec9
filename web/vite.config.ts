// One console is built or served at a time: the folder that APP names, which
// holds its index.html. Each service serves its console alone, so each gets a
// build of its own under dist/, and none downloads what another one needs.
import { resolve } from 'node:path';
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vitest/config';

const app = process.env['APP'] ?? 'edge';
const server = process.env['MAINSTAY_URL'] ?? 'http://127.0.0.1:8080';
const proxy = { '/api': server, '/console': server, '/docs': server, '/v1': { target: server, ws: true }, '^/fleet/': server };

// What the services send with the console; the preview sends the same, so that
// the end-to-end tests see what the policy would block.
const headers = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
};

export default defineConfig({
  root: resolve(import.meta.dirname, app),
  plugins: [react()],
  build: {
    outDir: resolve(import.meta.dirname, 'dist', app),
    emptyOutDir: true,
    manifest: true,
    target: 'es2023',
    // Small files as data: URLs would need exceptions in the policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // What counts is compressed, and `npm run size` bounds it.
    chunkSizeWarningLimit: 1000,
  },
  server: { proxy, fs: { allow: [import.meta.dirname] } },
  preview: { proxy, headers },
  test: {
    root: import.meta.dirname,
    environment: 'happy-dom',
    include: ['src/**/*.test.{ts,tsx}'],
    setupFiles: ['src/ui/test-setup.ts'],
  },
});
