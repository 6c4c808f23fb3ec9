#!/bin/sh
# Builds bin/mainstay-ceph where there are a C compiler and the headers of librados and librbd. The arguments are those of
# go build. Without the program, the storage gateway cannot use Ceph clusters.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
if printf '#include <rados/librados.h>\n#include <rbd/librbd.h>\n' | $($GO env CC) -E - >/dev/null 2>&1; then
	CGO_ENABLED=1 $GO build -tags 'ceph pacific' "$@" -o bin/ ./cmd/mainstay-ceph
else
	echo "bin/mainstay-ceph, for storage in Ceph, is skipped: it takes gcc, librados-dev and librbd-dev" >&2
fi
