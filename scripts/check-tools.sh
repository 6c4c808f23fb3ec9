#!/bin/sh
# Says which of the programs that Mainstay is built with are missing or too old, and where they come from.
set -u
ok=true
lacks() { # lacks PROGRAM WHERE-FROM
	echo "Mainstay is built with $1: see $2" >&2
	ok=false
}
command -v "${GO:-go}" >/dev/null || lacks "Go 1.26 or newer" https://go.dev/dl/
# What Node.js itself says of its version; the packages of the consoles need that much.
newer='const [major, minor] = process.versions.node.split(".").map(Number); process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)'
if ! command -v npm >/dev/null || ! node -e "$newer" 2>/dev/null; then
	lacks "Node.js 20.19 or newer, with npm" https://nodejs.org/en/download
fi
$ok
