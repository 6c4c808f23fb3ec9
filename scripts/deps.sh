#!/bin/sh
# Installs what the tests need and this machine lacks: through apt as root, else it prints the line to run.
set -eu
cd "$(dirname "$0")/.."
. scripts/packages.sh
run_packages
test_packages

# A guest is built of a kernel that is downloaded, so apt has to know of it.
if can_install && [ -z "$(apt-cache depends "linux-image-cloud-$(dpkg --print-architecture)" 2>/dev/null)" ]; then
	apt update >/dev/null
fi

if [ -n "$missing" ] && ! can_install; then
	printf 'The tests need more than this machine has:\n%sRun:\n' "$reasons"
	install_line
	exit 1
fi
if [ -n "$missing" ]; then
	printf 'Installing for the tests:\n%s' "$reasons"
	install_missing >/dev/null
fi

# Sandboxes: Debian's own gVisor is too old, so it is built, which takes some minutes once.
if [ "$(id -u)" = 0 ] && ! sh bench/runsc/build.sh /usr/local/bin/runsc; then
	echo "gVisor (runsc) could not be built; tests of sandboxes need it" >&2
	exit 1
fi
