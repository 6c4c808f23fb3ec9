#!/bin/sh
# Fuzzes each fuzz target for FUZZTIME (10s).
set -eu
cd "$(dirname "$0")/.."
for file in $(grep -rl --include='*_test.go' '^func Fuzz' api app cli kit service); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\).*/\1/p' "$file"); do
		echo "== $(dirname "$file") $target"
		# Without the bound, shortening an input can outlast FUZZTIME, which go test then reports as a failure.
		go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 100x
	done
done
