#!/bin/sh
# Puts the tables of settings, made from the code, between their markers in each service's guide.
set -eu
cd "$(dirname "$0")/.."
program=$(mktemp)
trap 'rm -f "$program"' EXIT
# Compiled as "make build" does, so that the cache has it.
CGO_ENABLED=0 go build -trimpath -o "$program" ./cmd/mainstay
fill() { # fill GUIDE MARKER COMMAND: what `mainstay settings COMMAND` prints goes between <!-- MARKER:begin --> and <!-- MARKER:end -->
	guide=docs/services/$1.md
	table=$(mktemp)
	"$program" settings "$3" >"$table"
	awk -v table="$table" -v begin="<!-- $2:begin -->" -v end="<!-- $2:end -->" '
		index($0, begin) { print; while ((getline line < table) > 0) print line; skipping = 1; next }
		index($0, end) { skipping = 0 }
		!skipping { print }
	' "$guide" >"$table.new"
	cmp -s "$table.new" "$guide" || cp "$table.new" "$guide"
	rm -f "$table" "$table.new"
}
for service in agent edge hypervisor lb storage vm; do
	fill $service settings $service
done
fill lb config lb-document
fill hypervisor config hypervisor-document
