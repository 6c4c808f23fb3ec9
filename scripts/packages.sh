# shellcheck shell=sh
# The packages of Debian and Ubuntu that Mainstay uses, and how they are installed. It is read by run-deps.sh and deps.sh.

missing="" # packages that this machine lacks
reasons="" # a line for each of them: what it is for

need() { # need PACKAGE WHAT-FOR TEST...: the test succeeds if the machine has it
	package=$1 purpose=$2
	shift 2
	"$@" >/dev/null 2>&1 && return
	missing="$missing $package"
	reasons="$reasons$(printf '  %-17s %s' "$package" "$purpose")
"
}

# What the services of `mainstay dev` use.
run_packages() {
	need qemu-system-x86 "runs virtual machines" command -v qemu-system-x86_64
	need qemu-utils "disks, images and backups of virtual machines" command -v qemu-img
	need busybox-static "the demo guest's programs" sh -c 'file=$(command -v busybox) && ldd "$file" 2>&1 | grep -q "not a dynamic"'
	need cpio "packs the demo guest" command -v cpio
	need xz-utils "unpacks the kernel modules of the demo guest" command -v xz
	need curl "sends events in the README's tour" command -v curl
}

# What the tests use beside them.
test_packages() {
	need postgresql "the second database" sh -c 'ls /usr/lib/postgresql/*/bin/initdb || command -v initdb'
	need openssl "certificates, seen by another program" command -v openssl
	need e2fsprogs "full disks" sh -c 'command -v mkfs.ext4 || ls /sbin/mkfs.ext4'
	need mount "full disks" command -v mount
	need xfsprogs "file systems in backups" sh -c 'command -v mkfs.xfs || ls /sbin/mkfs.xfs'
	need btrfs-progs "file systems in backups" sh -c 'command -v mkfs.btrfs || ls /sbin/mkfs.btrfs'
	need dosfstools "file systems in backups" sh -c 'command -v mkfs.vfat || ls /sbin/mkfs.vfat'
	need fdisk "partitions in backups" sh -c 'command -v sfdisk || ls /sbin/sfdisk'
	need iproute2 "network namespaces" command -v ip
	need chromium "the consoles in a browser" command -v chromium
	need podman "deployments" command -v podman
	need runc "deployments" command -v runc
	need netavark "deployments" test -x /usr/lib/podman/netavark
	need containerd "pods on a real node of Kubernetes" command -v containerd
	need containernetworking-plugins "pods on a real node of Kubernetes" test -x /usr/lib/cni/bridge
	# The version that the load balancer's program is compiled with is pinned.
	need clang-14 "compiles the load balancer's program" command -v clang-14
	need llvm-14 "compiles the load balancer's program" command -v llvm-strip-14
	need libbpf-dev "compiles the load balancer's program" test -e /usr/include/bpf/bpf_helpers.h
	need linux-libc-dev "compiles the load balancer's program" test -e /usr/include/linux/bpf.h
	need bird2 "a router that the load balancer announces to" sh -c 'command -v bird || ls /usr/sbin/bird'
	need frr "a router that the load balancer announces to" test -x /usr/lib/frr/bgpd
	need ethtool "network devices of the tests" sh -c 'command -v ethtool || ls /usr/sbin/ethtool'
	need iptables "network rules of the tests" sh -c 'command -v iptables || ls /usr/sbin/iptables'
	need nftables "network rules of the tests" sh -c 'command -v nft || ls /usr/sbin/nft'
	need ovmf "virtual machines that boot by UEFI" sh -c 'ls /usr/share/OVMF/OVMF_CODE*.fd'
	need gcc "compiles the helpers for the host's accounts and for Ceph" command -v gcc
	need librados-dev "compiles the helper for Ceph" test -e /usr/include/rados/librados.h
	need librbd-dev "compiles the helper for Ceph" test -e /usr/include/rbd/librbd.h
	need libpam0g-dev "compiles the helper for the host's accounts" test -e /usr/include/security/pam_appl.h
	need passwd "accounts of the host" sh -c 'command -v useradd || ls /usr/sbin/useradd'
	need mmdebstrap "images of Debian" command -v mmdebstrap
	need grub-common "images that boot" command -v grub-mkimage
	need grub-pc-bin "images that boot" test -e /usr/lib/grub/i386-pc/boot.img
	need zstd "unpacks kernel modules, as Ubuntu packs them" command -v zstd
	need ceph-mon "disks in Ceph" command -v ceph-mon
	need ceph-osd "disks in Ceph" command -v ceph-osd
	need ceph-mgr "volumes in Ceph" command -v ceph-mgr
	need radosgw "buckets in Ceph" command -v radosgw
	need rbd-mirror "volumes that are mirrored between Ceph clusters" command -v rbd-mirror
	need python3-rbd "reads and writes volumes in Ceph" sh -c 'ls /usr/lib/python3/dist-packages/rbd.*.so'
	need ceph-common "disks in Ceph" command -v rbd
	need qemu-block-extra "disks in Ceph" sh -c 'ls /usr/lib/*/qemu/block-rbd.so'
}

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# apt gives up soon where there is no network, and waits for another apt that is at work.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=120 "$@"; }

install_missing() { # what apt prints goes to the standard output
	# Without lists, as in a new container, apt knows no package. Old ones may do if new ones cannot be had.
	apt update || true
	# shellcheck disable=SC2086 # a list of packages
	apt install -y --no-install-recommends $missing
}

install_line() { echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends$missing"; }
