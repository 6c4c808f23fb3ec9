// End-to-end tests: the real binary with a filled control plane, in a real browser.
import { defineConfig } from '@playwright/test';

export default defineConfig({
  testDir: 'e2e',
  // Pictures for the documentation are taken on demand only.
  testIgnore: process.env['PICTURES'] ? [] : '**/*-pictures.spec.ts',
  globalSetup: './e2e/setup.ts',
  outputDir: 'test-results',
  timeout: 120_000,
  expect: { timeout: 10_000 },
  // Tests of one file share objects of the control plane.
  fullyParallel: false,
  workers: 2,
  forbidOnly: !!process.env['CI'],
  reporter: [['list']],
  use: {
    trace: 'retain-on-failure',
    // Colours are measured, and pictures taken, when nothing moves.
    contextOptions: { reducedMotion: 'reduce' },
    launchOptions: { executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] },
  },
});
