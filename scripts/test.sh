#!/bin/sh
# Runs the tests of all modules with every engine required, and ends with the tests that failed and the number of those
# that passed, failed and were skipped.
set -u
cd "$(dirname "$0")/.."
export MAINSTAY_REQUIRE=all
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
status=0

run() { # run NAME FOLDER GO-TEST-FLAGS...
	name=$1 folder=$2
	shift 2
	(cd "$folder" && go tool -modfile="$OLDPWD/tools/go.mod" gotestsum --format pkgname-and-test-fails --jsonfile "$results/$name.json" -- "$@") || status=1
}
root=$PWD
# Tests run programs and engines, which the test cache does not see, hence -count=1. "make lint" has looked for mistakes
# already, hence -vet=off. The tests of these whole services boot guests and fill databases. They take several times as
# long with the race detector: "make race" runs them with it.
module=$(go list -m)
whole="$module/service/edge $module/service/hypervisor $module/service/vm"
rooms=$(go list ./... | grep -v -x -F "$(echo "$whole" | tr ' ' '\n')")
# shellcheck disable=SC2086 # lists of packages
cd "$root" && run rooms . -count=1 -vet=off -race -timeout 40m $rooms
# shellcheck disable=SC2086 # lists of packages
cd "$root" && run whole . -count=1 -vet=off -timeout 40m $whole
cd "$root" && run e2e e2e -count=1 -vet=off -timeout 25m ./...
cd "$root" && run bench bench -count=1 -vet=off -timeout 5m ./...

# The consoles: units, then every page in a real browser against the real binary.
cd "$root/web" && npm run --silent test -- --reporter=default --reporter=json --outputFile.json="$results/units.web" || status=1
cd "$root/web" && PLAYWRIGHT_JSON_OUTPUT_NAME="$results/pages.web" npm run --silent e2e -- --reporter=dot,json || status=1
cd "$root/web" && npm run --silent size || status=1

node "$root/scripts/report.mjs" "$results"/*.json "$results"/*.web || status=1
exit $status
