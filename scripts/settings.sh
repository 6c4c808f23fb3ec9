#!/bin/sh
# Puts the table of settings, made from the code, between the markers in each service's guide.
set -eu
cd "$(dirname "$0")/.."
for service in agent edge; do
	guide=docs/services/$service.md
	table=$(mktemp)
	go run ./cmd/mainstay settings $service >"$table"
	awk -v table="$table" '
		/<!-- settings:begin -->/ { print; while ((getline line < table) > 0) print line; skipping = 1 }
		/<!-- settings:end -->/ { skipping = 0 }
		!skipping || /<!-- settings:end -->/ { if (!/<!-- settings:begin -->/) print }
	' "$guide" >"$table.new"
	cmp -s "$table.new" "$guide" || cp "$table.new" "$guide"
	rm -f "$table" "$table.new"
done
