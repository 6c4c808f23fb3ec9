// Sums up a run of all tests: the slowest packages, each failed test with the end of what it printed, and the counts.
// Its arguments are the reports of gotestsum (*.json) and those of Vitest and Playwright (*.web). It prints the failures
// last, since of a long log often only the end is kept.
import { readFileSync } from 'node:fs';

const lastLines = 40;
const counts = { passed: 0, failed: 0, skipped: 0 };
const packages = [];
const failures = [];

function fail(name, output) {
  counts.failed++;
  failures.push({ name, output: output.trimEnd().split('\n').slice(-lastLines) });
}

// One JSON object a line; https://pkg.go.dev/cmd/test2json describes them.
function go(lines) {
  const printed = new Map();
  for (const line of lines) {
    if (line === '') continue;
    const event = JSON.parse(line);
    const { Action: action, Package: pkg, Test: test, Output: output, Elapsed: seconds } = event;
    const name = event.ImportPath ?? (test === undefined ? pkg : `${pkg}.${test}`);
    if (action === 'output' || action === 'build-output') {
      printed.set(name, [...(printed.get(name) ?? []).slice(-2 * lastLines), output]);
    } else if (action === 'pass' || action === 'fail' || action === 'skip') {
      if (test === undefined) {
        packages.push({ pkg, seconds });
        // A package also fails without a failed test, when it does not compile, panics or takes too long.
        if (action === 'fail' && !failures.some((failure) => failure.name.startsWith(`${pkg}.`))) {
          fail(name, (printed.get(event.FailedBuild ?? name) ?? []).join(''));
        }
      } else if (action === 'fail') {
        fail(name, (printed.get(name) ?? []).join(''));
      } else {
        counts[action === 'pass' ? 'passed' : 'skipped']++;
      }
      printed.delete(name);
    }
  }
}

function vitest(report) {
  counts.passed += report.numPassedTests;
  counts.skipped += report.numPendingTests + report.numTodoTests;
  for (const file of report.testResults) {
    const failed = file.assertionResults.filter((test) => test.status === 'failed');
    for (const test of failed) fail(`${file.name}: ${test.fullName}`, test.failureMessages.join('\n'));
    if (file.status === 'failed' && failed.length === 0) fail(file.name, file.message);
  }
}

function playwright(report) {
  counts.passed += report.stats.expected;
  counts.skipped += report.stats.skipped;
  const visit = (suite) => {
    for (const inner of suite.suites ?? []) visit(inner);
    for (const spec of suite.specs ?? []) {
      for (const test of spec.tests) {
        // A test that passed only on a second try has failed.
        if (test.status !== 'unexpected' && test.status !== 'flaky') continue;
        const errors = test.results.flatMap((result) => result.errors ?? []);
        fail(`${spec.file}: ${spec.title}`, errors.map((error) => error.message ?? '').join('\n'));
      }
    }
  };
  visit(report);
  for (const error of report.errors ?? []) fail('playwright', error.message ?? '');
}

for (const file of process.argv.slice(2)) {
  const text = readFileSync(file, 'utf8');
  if (file.endsWith('.json')) {
    go(text.split('\n'));
  } else {
    const report = JSON.parse(text);
    if (report.stats) playwright(report);
    else vitest(report);
  }
}

packages.sort((a, b) => b.seconds - a.seconds);
console.log('The slowest packages, in seconds:');
for (const { pkg, seconds } of packages.slice(0, 10)) console.log(`${seconds} ${pkg}`);
for (const { name, output } of failures) {
  console.log(`FAILED ${name}`);
  for (const line of output) console.log(`    ${line}`);
}
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
