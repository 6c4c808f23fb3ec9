// Counts the tests of one outcome (passed, failed, skipped) in the JSON reports of Vitest and Playwright.
import { readFileSync } from 'node:fs';

const [outcome, ...files] = process.argv.slice(2);
let count = 0;
for (const file of files) {
  const report = JSON.parse(readFileSync(file, 'utf8'));
  if (report.stats) {
    // Playwright. A test that passed only on a second try counts as failed.
    const { expected, unexpected, flaky, skipped } = report.stats;
    count += { passed: expected, failed: unexpected + flaky, skipped }[outcome];
  } else {
    count += { passed: report.numPassedTests, failed: report.numFailedTests, skipped: report.numPendingTests + report.numTodoTests }[outcome];
  }
}
console.log(count);
