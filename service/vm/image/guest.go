package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// guestFile is a file or a symbolic link of the guest.
type guestFile struct {
	content string
	link    string
	mode    int64 // 0: 0644
}

const (
	secretScript = `#!/bin/sh
# Copies the agent's secret from the disk on which the host leaves it.
set -eu
mkdir -p /run/mainstay-guest /run/mainstay-seed
n=0
until mount -o ro,nosuid,nodev LABEL=cidata /run/mainstay-seed 2>/dev/null; do
	n=$((n + 1))
	[ "$n" -lt 60 ] || exit 1
	sleep 1
done
install -m 0600 /run/mainstay-seed/mainstay-secret /run/mainstay-guest/secret
umount /run/mainstay-seed
`
	agentUnit = `[Unit]
Description=Mainstay guest agent
DefaultDependencies=no
After=systemd-udevd.service local-fs.target
Before=shutdown.target
Conflicts=shutdown.target

[Service]
ExecStartPre=/usr/lib/mainstay/guest-secret
ExecStart=/usr/bin/mainstay-guest
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
`
	prepareScript = `#!/bin/sh
# Gives the machine host keys of its own, and its root file system all of the disk.
if command -v ssh-keygen >/dev/null && [ -d /etc/ssh ]; then ssh-keygen -A; fi
root=$(findmnt -no SOURCE /)
disk=${root%1}
if command -v sfdisk >/dev/null && [ "$disk" != "$root" ]; then
	echo ', +' | sfdisk --quiet --no-reread --force -N 1 "$disk" && partx --update "$disk"
fi
resize2fs "$root"
exit 0
`
	prepareUnit = `[Unit]
Description=Host keys and the size of the root file system
After=systemd-remount-fs.service
Before=ssh.service sshd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/mainstay/prepare

[Install]
WantedBy=multi-user.target
`
	networkFile = `[Match]
Type=ether

[Network]
DHCP=yes
`
	autologinFile = `[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root --noclear --keep-baud 115200,57600,38400,9600 - $TERM
`
	// The kernel is the one that the distribution's links name, and otherwise the last by name. So it stays
	// right when a kernel is installed.
	grubFile = `serial --unit=0 --speed=115200
terminal_input console serial
terminal_output console serial
set timeout=1
set default=0
set options="root=UUID=%[1]s ro console=tty0 console=ttyS0,115200"
if [ -e ($root)/vmlinuz ]; then
	set kernel=/vmlinuz
	set ramdisk=/initrd.img
elif [ -e ($root)/boot/vmlinuz ]; then
	set kernel=/boot/vmlinuz
	set ramdisk=/boot/initrd.img
elif [ -e ($root)/boot/vmlinuz-linux ]; then
	set kernel=/boot/vmlinuz-linux
	set ramdisk=/boot/initramfs-linux.img
else
	for file in ($root)/boot/vmlinuz-*; do
		if regexp --set=1:name 'vmlinuz-(.*)$' "$file"; then
			if [ -e ($root)/boot/initramfs-$name.img ]; then
				set kernel=/boot/vmlinuz-$name
				set ramdisk=/boot/initramfs-$name.img
			elif [ -e ($root)/boot/initrd-$name ]; then
				set kernel=/boot/vmlinuz-$name
				set ramdisk=/boot/initrd-$name
			fi
		fi
	done
fi
menuentry "Linux" {
	linux $kernel $options
	initrd $ramdisk
}
`
	// cleanScript runs in the guest's folder. What must differ between machines is made at the first boot.
	cleanScript = `set -eu
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id /var/lib/systemd/random-seed /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
sed -i 's/^root:[^:]*:/root:*:/' /etc/shadow
if [ -e /usr/lib/systemd/systemd-resolved ]; then ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf; fi
rm -rf /tmp/* /var/tmp/*
`
)

const (
	units = "usr/lib/systemd/system/"
	wants = "etc/systemd/system/multi-user.target.wants/"
)

// guestFiles are the files that make a distribution's packages a guest of Mainstay.
func guestFiles(spec *record.ImageSpec, name, uuid string) map[string]guestFile {
	files := map[string]guestFile{
		"etc/fstab":                               {content: "UUID=" + uuid + " / ext4 errors=remount-ro 0 1\n"},
		"etc/hostname":                            {content: name + "\n"},
		"etc/hosts":                               {content: "127.0.0.1 localhost\n127.0.1.1 " + name + "\n::1 localhost ip6-localhost ip6-loopback\n"},
		"boot/grub/grub.cfg":                      {content: fmt.Sprintf(grubFile, uuid)},
		"usr/lib/mainstay/prepare":                {content: prepareScript, mode: 0o755},
		units + "mainstay-prepare.service":        {content: prepareUnit},
		wants + "mainstay-prepare.service":        {link: "/" + units + "mainstay-prepare.service"},
		"etc/systemd/network/80-mainstay.network": {content: networkFile},
		wants + "systemd-networkd.service":        {link: "/" + units + "systemd-networkd.service"},
		wants + "systemd-resolved.service":        {link: "/" + units + "systemd-resolved.service"},
		"etc/systemd/system/sockets.target.wants/systemd-networkd.socket": {link: "/" + units + "systemd-networkd.socket"},
	}
	if spec.Agent {
		files["usr/lib/mainstay/guest-secret"] = guestFile{content: secretScript, mode: 0o755}
		files[units+"mainstay-guest.service"] = guestFile{content: agentUnit}
		files[wants+"mainstay-guest.service"] = guestFile{link: "/" + units + "mainstay-guest.service"}
	}
	if spec.Autologin {
		files["etc/systemd/system/serial-getty@ttyS0.service.d/autologin.conf"] = guestFile{content: autologinFile}
	}
	if spec.CloudInit {
		files["etc/cloud/cloud.cfg.d/90-mainstay.cfg"] = guestFile{
			content: "datasource_list: [NoCloud, None]\nnetwork: {config: disabled}\n",
		}
	}
	return files
}

// overlay returns an archive of files, owned by root, with the program of the agent; empty: none.
func overlay(files map[string]guestFile, agent string) (io.Reader, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{".": true}
	add := func(h tar.Header, content []byte) error {
		h.Size, h.ModTime, h.Format = int64(len(content)), time.Unix(0, 0), tar.FormatUSTAR
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	var folders func(dir string) error
	folders = func(dir string) error {
		if made[dir] {
			return nil
		}
		if err := folders(path.Dir(dir)); err != nil {
			return err
		}
		made[dir] = true
		return add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		if err := folders(path.Dir(name)); err != nil {
			return nil, err
		}
		h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
		if f.mode != 0 {
			h.Mode = f.mode
		}
		if f.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := add(h, []byte(f.content)); err != nil {
			return nil, err
		}
	}
	if agent != "" {
		program, err := os.ReadFile(agent) //nolint:gosec // the operator's choice
		if err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "the guest agent's program cannot be read")
		}
		if err := add(tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/mainstay-guest", Mode: 0o755}, program); err != nil {
			return nil, err
		}
	}
	return &out, w.Close()
}
