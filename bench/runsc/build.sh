#!/bin/sh
# Builds gVisor's runsc, of the version that go.mod pins, to the path in $1.
# Does nothing when the program there was built from the same go.sum.
# It takes some minutes of CPU and a GB of build cache the first time.
set -eu

[ $# -eq 1 ] || { echo "usage: sh bench/runsc/build.sh /usr/local/bin/runsc" >&2; exit 2; }
case $1 in
/*) target=$1 ;;
*) target=$(pwd)/$1 ;;
esac
cd "$(dirname "$0")"

stamp=$target.built-from
want=$(cat go.mod go.sum build.sh | sha256sum | cut -d' ' -f1)
if [ -x "$target" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
	exit 0
fi
rm -f "$stamp"
mkdir -p "$(dirname "$target")"
# Built beside and renamed: a runsc that runs is not written over, nor is half of one left.
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=release-20260905.0" -o "$target.new" gvisor.dev/gvisor/runsc
mv "$target.new" "$target"
echo "$want" >"$stamp"
