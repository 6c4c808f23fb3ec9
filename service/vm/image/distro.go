package image

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// release is a version of a distribution that can be built.
type release struct {
	version  string // its number
	codename string // what its repositories call it; empty: the number
	resolved bool   // systemd-resolved is a package of its own
}

// distribution is how the folder of a distribution's guest is made.
type distribution struct {
	releases []release // newest last
	mirror   string    // where packages come from
	security string    // where their corrections come from; empty: the same place
	packages []string  // what a guest needs beside what is essential
	tool     string
	hint     string // how the tool is installed
	// command returns the arguments of the tool, which fills the folder root, and the files that it takes, by
	// their names below the folder config.
	command func(b bootstrap) (args []string, files map[string]string)
}

// bootstrap is what a folder is filled with.
type bootstrap struct {
	distribution
	release
	name     string // of the distribution
	root     string
	config   string // the folder for the tool's own files
	packages []string
}

const usePackage = "on Debian and Ubuntu, apt-get install "

// guestPackages are those of Debian and Ubuntu.
var guestPackages = []string{
	"systemd-sysv", "dbus", "udev", "login", "e2fsprogs", "fdisk", "iproute2", "ca-certificates",
}

// rpmPackages are those of distributions with RPM packages.
var rpmPackages = []string{
	"systemd", "systemd-udev", "passwd", "util-linux", "e2fsprogs", "iproute", "tar", "dracut-config-generic",
}

// distributions are all that are built, by name.
var distributions = map[string]distribution{
	"debian": {
		releases: []release{{"12", "bookworm", true}, {"13", "trixie", true}},
		mirror:   "http://deb.debian.org/debian", security: "http://deb.debian.org/debian-security",
		packages: append([]string{"linux-image-cloud-amd64"}, guestPackages...),
		tool:     "mmdebstrap", hint: usePackage + "mmdebstrap", command: mmdebstrap,
	},
	"ubuntu": {
		releases: []release{{"22.04", "jammy", false}, {"24.04", "noble", true}},
		mirror:   "http://archive.ubuntu.com/ubuntu", security: "http://security.ubuntu.com/ubuntu",
		packages: append([]string{"linux-image-virtual", "initramfs-tools"}, guestPackages...),
		tool:     "mmdebstrap", hint: usePackage + "mmdebstrap ubuntu-keyring", command: mmdebstrap,
	},
	"fedora": {
		releases: []release{{version: "41"}, {version: "42"}},
		mirror:   "https://dl.fedoraproject.org/pub/fedora/linux/releases/$releasever/Everything/x86_64/os/",
		packages: append([]string{"fedora-release", "kernel-core", "systemd-networkd", "systemd-resolved"}, rpmPackages...),
		tool:     "dnf", hint: usePackage + "dnf distribution-gpg-keys", command: dnf,
	},
	"centos": {
		releases: []release{{version: "9"}, {version: "10"}},
		mirror:   "https://mirror.stream.centos.org/$releasever-stream/",
		packages: append([]string{"centos-stream-release", "kernel-core", "NetworkManager"}, rpmPackages...),
		tool:     "dnf", hint: usePackage + "dnf distribution-gpg-keys", command: dnf,
	},
	"alma": {
		releases: []release{{version: "9"}, {version: "10"}},
		mirror:   "https://repo.almalinux.org/almalinux/$releasever/",
		packages: append([]string{"almalinux-release", "kernel-core", "NetworkManager"}, rpmPackages...),
		tool:     "dnf", hint: usePackage + "dnf distribution-gpg-keys", command: dnf,
	},
	"rocky": {
		releases: []release{{version: "9"}, {version: "10"}},
		mirror:   "https://dl.rockylinux.org/pub/rocky/$releasever/",
		packages: append([]string{"rocky-release", "kernel-core", "NetworkManager"}, rpmPackages...),
		tool:     "dnf", hint: usePackage + "dnf distribution-gpg-keys", command: dnf,
	},
	"arch": {
		releases: []release{{version: "latest"}},
		mirror:   "https://geo.mirror.pkgbuild.com/$repo/os/$arch",
		packages: []string{"base", "linux", "mkinitcpio"},
		tool:     "pacstrap", hint: usePackage + "arch-install-scripts pacman-package-manager archlinux-keyring", command: pacstrap,
	},
	"opensuse": {
		releases: []release{{version: "15.6"}},
		mirror:   "https://download.opensuse.org/distribution/leap/",
		packages: []string{
			"openSUSE-release", "kernel-default-base", "systemd", "systemd-network", "dracut", "e2fsprogs", "tar",
		},
		tool: "zypper", hint: usePackage + "zypper", command: zypper,
	},
}

// releaseOf returns a release by its number or code name; empty: the newest.
func (d *distribution) releaseOf(version string) (release, error) {
	if version == "" {
		return d.releases[len(d.releases)-1], nil
	}
	var known []string
	for _, r := range d.releases {
		if version == r.version || version == r.codename && r.codename != "" {
			return r, nil
		}
		known = append(known, r.version)
	}
	return release{}, fault.InvalidField("version", "must be one of %s", strings.Join(known, ", "))
}

// bootstrapOf returns what the folder root is filled with. config is a folder for the tool's own files, and mirrors
// replaces where packages come from.
func bootstrapOf(spec *record.ImageSpec, root, config string, mirrors map[string]string) (bootstrap, error) {
	d, ok := distributions[spec.Distribution]
	if !ok {
		return bootstrap{}, fault.InvalidField("distribution", "%q is not known", spec.Distribution)
	}
	r, err := d.releaseOf(spec.Version)
	if err != nil {
		return bootstrap{}, err
	}
	if m := mirrors[spec.Distribution]; m != "" {
		d.mirror = m
	}
	if m := mirrors[spec.Distribution+"-security"]; m != "" {
		d.security = m
	}
	b := bootstrap{distribution: d, release: r, name: spec.Distribution, root: root, config: config}
	b.packages = append(b.packages, d.packages...)
	if r.resolved {
		b.packages = append(b.packages, "systemd-resolved")
	}
	if spec.CloudInit {
		server := "openssh-server"
		if b.name == "arch" {
			server = "openssh"
		}
		b.packages = append(b.packages, "cloud-init", "sudo", server)
	}
	for _, p := range spec.Packages {
		if !slices.Contains(b.packages, p) {
			b.packages = append(b.packages, p)
		}
	}
	return b, nil
}

// mmdebstrap is the tool of Debian and Ubuntu.
func mmdebstrap(b bootstrap) ([]string, map[string]string) {
	components := map[string]string{"debian": "main", "ubuntu": "main universe"}[b.name]
	args := []string{
		"--mode=unshare", "--variant=minbase", "--format=directory", "--architectures=amd64",
		"--aptopt=Acquire::Retries \"2\"", "--aptopt=Acquire::http::Timeout \"30\"",
		"--include=" + strings.Join(b.packages, ","), "--", b.codename, b.root,
	}
	for _, s := range []struct{ mirror, suite string }{
		{b.mirror, b.codename}, {b.mirror, b.codename + "-updates"}, {b.security, b.codename + "-security"},
	} {
		args = append(args, "deb "+s.mirror+" "+s.suite+" "+components)
	}
	return args, nil
}

// keyDir is where distribution-gpg-keys keeps the keys of distributions.
const keyDir = "/usr/share/distribution-gpg-keys/"

// dnf is the tool of Fedora and of what is made of it.
func dnf(b bootstrap) ([]string, map[string]string) {
	repositories := map[string]string{"baseos": "BaseOS/x86_64/os/", "appstream": "AppStream/x86_64/os/"}
	key := map[string]string{
		"centos": "centos/RPM-GPG-KEY-CentOS-Official", "alma": "alma/RPM-GPG-KEY-AlmaLinux-" + b.version,
		"rocky": "rocky/RPM-GPG-KEY-Rocky-" + b.version,
	}[b.name]
	if b.name == "fedora" {
		repositories, key = map[string]string{"fedora": ""}, "fedora/RPM-GPG-KEY-fedora-"+b.version+"-primary"
	}
	var text strings.Builder
	text.WriteString("[main]\ngpgcheck=1\ninstall_weak_deps=False\nretries=2\ntimeout=30\n")
	for name, path := range repositories {
		text.WriteString("[" + name + "]\nname=" + name + "\nbaseurl=" + strings.TrimSuffix(b.mirror, "/") + "/" + path +
			"\ngpgkey=file://" + keyDir + key + "\n")
	}
	args := []string{
		"--config=" + filepath.Join(b.config, "dnf.conf"), "--installroot=" + b.root, "--releasever=" + b.version,
		"--setopt=reposdir=/nonexistent", "--assumeyes", "--nodocs", "install",
	}
	return append(args, b.packages...), map[string]string{"dnf.conf": text.String()}
}

// pacstrap is the tool of Arch Linux.
func pacstrap(b bootstrap) ([]string, map[string]string) {
	conf := "[options]\nArchitecture = x86_64\nSigLevel = Required DatabaseOptional\nDisableSandbox\n"
	for _, repo := range []string{"core", "extra"} {
		conf += "[" + repo + "]\nServer = " + b.mirror + "\n"
	}
	args := []string{"-K", "-M", "-C", filepath.Join(b.config, "pacman.conf"), b.root}
	return append(args, b.packages...), map[string]string{"pacman.conf": conf}
}

// zypper is the tool of openSUSE.
func zypper(b bootstrap) ([]string, map[string]string) {
	repo := "[oss]\nname=oss\nbaseurl=" + strings.TrimSuffix(b.mirror, "/") + "/" + b.version +
		"/repo/oss/\nenabled=1\ngpgcheck=1\n"
	args := []string{
		"--root", b.root, "--reposd-dir", filepath.Join(b.config, "repos"), "--non-interactive",
		"--gpg-auto-import-keys", "install", "--no-recommends",
	}
	return append(args, b.packages...), map[string]string{"repos/oss.repo": repo}
}
