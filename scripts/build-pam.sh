#!/bin/sh
# Builds bin/mainstay-pam where there are a C compiler and PAM's headers. The arguments are those of go build.
# Without the program, services know only accounts of their own.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
if echo '#include <security/pam_appl.h>' | $($GO env CC) -E - >/dev/null 2>&1; then
	CGO_ENABLED=1 $GO build -tags pam "$@" -o bin/ ./cmd/mainstay-pam
else
	echo "bin/mainstay-pam, for logins with the host's accounts, is skipped: it takes gcc and libpam0g-dev" >&2
fi
