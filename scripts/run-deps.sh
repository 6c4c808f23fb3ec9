#!/bin/sh
# Installs what the services of `mainstay dev` use and this machine lacks, as root with apt; else it prints the line to run.
# The services start without it, so it never fails. MAINSTAY_NO_INSTALL=1 skips it.
set -u
[ "${MAINSTAY_NO_INSTALL:-}" = 1 ] && exit 0
cd "$(dirname "$0")/.." || exit 0
. scripts/packages.sh

log=$(mktemp) || exit 0
work=""
trap 'rm -rf "$log" ${work:+"$work"}' EXIT
trap 'exit 130' INT TERM

run_packages
if [ -n "$missing" ]; then
	if can_install; then
		printf 'Installing what the services use, which takes a minute (MAINSTAY_NO_INSTALL=1 skips it):\n%s' "$reasons"
		install_missing >"$log" 2>&1
		missing="" reasons=""
		run_packages
		[ -z "$missing" ] || sed -n 's/^E: /apt: /p' "$log" | tail -n 5
	fi
	if [ -n "$missing" ]; then
		printf 'This machine lacks what some services use; they start without:\n%s' "$reasons"
		echo "Install it and start again (MAINSTAY_NO_INSTALL=1 hides this):"
		install_line
	fi
fi

# The demo guest boots the newest kernel for clouds. With its package fetched, `mainstay image build-demo` needs no network.
folder=${HYPERVISOR_DATA:-.mainstay/hypervisor}/demo
fetch_kernel() {
	ls "$folder"/linux-image-*.deb >/dev/null 2>&1 && return
	command -v apt-cache >/dev/null && command -v dpkg >/dev/null || return
	meta=linux-image-cloud-$(dpkg --print-architecture)
	kernel=$(apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1)
	if [ -z "$kernel" ] && can_install; then
		apt update >"$log" 2>&1
		kernel=$(apt-cache depends "$meta" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1)
	fi
	[ -n "$kernel" ] || return
	echo "Fetching the kernel of the demo guest: $kernel"
	# The services keep their folders to themselves; VMs under users of their own pass through the hypervisor's.
	mkdir -p -m 700 .mainstay && mkdir -p -m 711 "${folder%/demo}" && mkdir -p "$folder" || return
	work=$(mktemp -d "$folder/.fetch-XXXXXX") || return # removed at the end
	# apt's own user may not write there.
	if (cd "$work" && apt -o APT::Sandbox::User=root download "$kernel") >"$log" 2>&1; then
		mv "$work"/*.deb "$folder"
	else
		echo "It could not be fetched; 'mainstay image build-demo' will try again."
		sed -n 's/^E: /apt: /p' "$log" | tail -n 2
	fi
}
fetch_kernel
exit 0
