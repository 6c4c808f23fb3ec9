#!/bin/sh
# Installs what the tests need and this machine lacks: through apt as root, else it prints the line to run.
set -eu

missing=""
need() { # need DEBIAN-PACKAGE TEST...
	package=$1
	shift
	"$@" >/dev/null 2>&1 || missing="$missing $package"
}
need postgresql sh -c 'ls /usr/lib/postgresql/*/bin/initdb || command -v initdb'
need openssl command -v openssl
need e2fsprogs sh -c 'command -v mkfs.ext4 || ls /sbin/mkfs.ext4'
need mount command -v mount
need iproute2 command -v ip
need chromium command -v chromium
need podman command -v podman
need runc command -v runc
need netavark test -x /usr/lib/podman/netavark
# What the load balancer's program is compiled with: the version is pinned.
need clang-14 command -v clang-14
need llvm-14 command -v llvm-strip-14
need libbpf-dev test -e /usr/include/bpf/bpf_helpers.h
need linux-libc-dev test -e /usr/include/linux/bpf.h
# Routers that it announces to.
need bird2 sh -c 'command -v bird || ls /usr/sbin/bird'
need frr test -x /usr/lib/frr/bgpd
need ethtool sh -c 'command -v ethtool || ls /usr/sbin/ethtool'
# Virtual machines.
need qemu-system-x86 command -v qemu-system-x86_64
need qemu-utils command -v qemu-img
need busybox-static sh -c 'ldd /bin/busybox 2>&1 | grep -q "not a dynamic"'
need ovmf sh -c 'ls /usr/share/OVMF/OVMF_CODE*.fd'
need cpio command -v cpio
# Their disks in Ceph.
need ceph-mon command -v ceph-mon
need ceph-osd command -v ceph-osd
need ceph-common command -v rbd
need qemu-block-extra sh -c 'ls /usr/lib/*/qemu/block-rbd.so'
need iptables sh -c 'command -v iptables || ls /usr/sbin/iptables'

# A guest is built of a kernel that is downloaded, so apt has to know of it.
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && [ -z "$(apt-cache depends "linux-image-cloud-$(dpkg --print-architecture)" 2>/dev/null)" ]; then
	apt-get update -qq
fi

# Sandboxes: Debian's own gVisor is too old, so it is built, which takes some minutes once.
sandboxes() {
	if [ "$(id -u)" = 0 ] && ! sh "$(dirname "$0")/../bench/runsc/build.sh" /usr/local/bin/runsc; then
		echo "gVisor (runsc) could not be built; tests of sandboxes need it" >&2
		exit 1
	fi
}

if [ -z "$missing" ]; then
	sandboxes
	exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "Installing for the tests:$missing"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	# shellcheck disable=SC2086 # a list of packages
	apt-get install -y -qq --no-install-recommends $missing >/dev/null
	sandboxes
	exit 0
fi
echo "The tests need more than this machine has. Run:"
echo "  sudo apt-get install -y$missing"
exit 1
