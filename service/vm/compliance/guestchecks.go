package compliance

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The programs that checks of guests need.
var (
	// awk prints names only, so that no hash of a password leaves the guest.
	emptyPasswords = &source{argv: []string{"awk", "-F:", `$2 == "" {print $1}`, "/etc/shadow"}}
	rootAccounts   = &source{argv: []string{"awk", "-F:", `$3 == 0 {print $1}`, "/etc/passwd"}}
	systemShells   = &source{argv: []string{"awk", "-F:", `$3 > 0 && $3 < 1000 && $1 != "sync" && $1 != "shutdown" && ` +
		`$1 != "halt" && $7 !~ /(nologin|false)$/ {print $1}`, "/etc/passwd"}}

	modes = &source{codes: []int{1}, argv: []string{
		"stat", "-c", "%a %u %n", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/ssh/sshd_config",
		"/etc/sudoers", "/etc/crontab",
	}}
	sshServer = &source{argv: []string{"sshd", "-T"}}
	mounts    = &source{argv: []string{"cat", "/proc/mounts"}}
	sockets   = &source{codes: []int{1}, argv: []string{"cat", "/proc/net/tcp", "/proc/net/tcp6"}}

	timeDaemons  = &source{codes: []int{1}, argv: []string{"pidof", "chronyd", "ntpd", "systemd-timesyncd", "openntpd"}}
	logDaemons   = &source{codes: []int{1}, argv: []string{"pidof", "systemd-journald", "rsyslogd", "syslogd"}}
	auditDaemons = &source{codes: []int{1}, argv: []string{"pidof", "auditd"}}
	firewall     = &source{argv: []string{"nft", "list", "ruleset"}}
	confinement  = &source{codes: []int{1, 2}, argv: []string{
		"grep", "-Hs", "", "/sys/fs/selinux/enforce", "/sys/module/apparmor/parameters/enabled",
	}}

	writable = &source{codes: []int{1}, argv: []string{
		"find", "/etc", "/usr/bin", "/usr/sbin", "/usr/local", "-xdev", "-type", "f", "-perm", "-0002",
	}}
	setuid = &source{codes: []int{1}, argv: []string{
		"find", "/home", "/tmp", "/var/tmp", "/dev/shm", "-xdev", "-type", "f", "-perm", "-4000",
	}}
)

// guestChecks are the checks of a guest, but those of kernel parameters.
func guestChecks() []Check {
	return []Check{
		{
			ID: "guest-no-empty-passwords", level: 1, Title: "Every account has a password, or is locked",
			Remedy: "Lock the accounts with `passwd -l NAME`.", source: emptyPasswords, guest: names(0),
		},
		{
			ID: "guest-one-root", level: 1, Title: "Only root has the user id 0",
			Remedy: "Give the other accounts ids of their own.", source: rootAccounts, guest: onlyRoot,
		},
		{
			ID: "guest-system-shells", level: 2, Title: "Accounts of the system have no shell",
			Remedy: "Set their shell with `usermod -s /usr/sbin/nologin NAME`.", source: systemShells, guest: names(0),
		},
		fileCheck("passwd", 0o644, "/etc/passwd"), fileCheck("group", 0o644, "/etc/group"),
		fileCheck("shadow", 0o640, "/etc/shadow", "/etc/gshadow"), fileCheck("sudoers", 0o440, "/etc/sudoers"),
		fileCheck("sshd-config", 0o644, "/etc/ssh/sshd_config"), fileCheck("crontab", 0o644, "/etc/crontab"),
		sshCheck("root-password", 1, "The SSH server refuses root with a password", "PermitRootLogin prohibit-password",
			"permitrootlogin", "no", "prohibit-password", "without-password", "forced-commands-only"),
		sshCheck("root", 2, "The SSH server refuses root", "PermitRootLogin no", "permitrootlogin", "no"),
		sshCheck("empty-passwords", 1, "The SSH server refuses empty passwords", "PermitEmptyPasswords no",
			"permitemptypasswords", "no"),
		sshCheck("host-based", 1, "The SSH server does not trust other hosts", "HostbasedAuthentication no",
			"hostbasedauthentication", "no"),
		sshCheck("passwords", 2, "The SSH server takes keys, and no passwords", "PasswordAuthentication no",
			"passwordauthentication", "no"),
		sshCheck("x11", 2, "The SSH server forwards no X11", "X11Forwarding no", "x11forwarding", "no"),
		{
			ID: "guest-ssh-tries", level: 1, Title: "The SSH server ends a connection after four failed attempts",
			Remedy: "Set `MaxAuthTries 4` in sshd_config.", source: sshServer, guest: sshTries,
		},
		{
			ID: "guest-ssh-ciphers", level: 1, Title: "The SSH server offers no broken ciphers",
			Remedy: "Leave out of Ciphers in sshd_config what contains cbc, 3des or arcfour.", source: sshServer, guest: sshCiphers,
		},
		mountCheck("shm", 1, "/dev/shm", "nosuid", "nodev"),
		mountCheck("tmp", 2, "/tmp", "nosuid", "nodev", "noexec"),
		{
			ID: "guest-no-cleartext-login", level: 1, Title: "No service for logins without encryption listens",
			Remedy: "Remove FTP, Telnet, rexec, rlogin and rsh.", source: sockets, guest: noCleartext,
		},
		daemonCheck("time", 1, "The guest's clock is kept right", "Install chrony, or enable systemd-timesyncd.", timeDaemons),
		daemonCheck("log", 1, "The guest keeps a log", "Enable systemd-journald or rsyslog.", logDaemons),
		daemonCheck("audit", 2, "The guest keeps an audit log", "Install and enable auditd.", auditDaemons),
		{
			ID: "guest-firewall", level: 2, Title: "The guest has a firewall of its own",
			Remedy: "Load rules with nftables.", source: firewall, guest: hasRules,
		},
		{
			ID: "guest-confinement", level: 2, Title: "SELinux or AppArmor confines programs",
			Remedy: "Enable SELinux (enforcing) or AppArmor.", source: confinement, guest: confined,
		},
		{
			ID: "guest-no-writable-programs", level: 1, Title: "Nobody but their owners can change programs and settings",
			Remedy: "Remove the permission with `chmod o-w FILE`.", source: writable, guest: names(0),
		},
		{
			ID: "guest-no-odd-setuid", level: 2, Title: "No program runs as another user from a folder for data",
			Remedy: "Remove the programs, or the permission with `chmod u-s FILE`.", source: setuid, guest: names(0),
		},
	}
}

// names judges a list of what should not be: most is how many there may be.
func names(most int) func(a *answer) verdict {
	return func(a *answer) verdict {
		found := a.words()
		return passedIf(len(found) <= most, "%d found %s", len(found), strings.Join(found, ", "))
	}
}

func onlyRoot(a *answer) verdict {
	found := a.words()
	if len(found) == 0 {
		return skipped("the guest names no account with the user id 0")
	}
	return passedIf(slices.Equal(found, []string{"root"}), "%s", strings.Join(found, ", "))
}

// fileCheck checks that files are root's, and have no permission beyond most.
func fileCheck(name string, most uint64, paths ...string) Check {
	return Check{
		ID: "guest-file-" + name, level: 1, Title: fmt.Sprintf("Others cannot change or read what they must not: %s", paths[0]),
		Remedy: fmt.Sprintf("Run `chown root` and `chmod %o` on %s.", most, strings.Join(paths, " and ")), source: modes,
		guest: func(a *answer) verdict {
			var seen, wrong []string
			a.lines(func(line string) {
				mode, rest, _ := strings.Cut(line, " ")
				owner, path, _ := strings.Cut(rest, " ")
				if !slices.Contains(paths, path) {
					return
				}
				bits, err := strconv.ParseUint(mode, 8, 32)
				seen = append(seen, line)
				if err != nil || owner != "0" || bits&^most != 0 {
					wrong = append(wrong, line)
				}
			})
			switch {
			case len(seen) == 0:
				return skipped("the guest does not have %s", paths[0])
			case len(wrong) > 0:
				return failed("%s", strings.Join(wrong, ", "))
			}
			return passed("%s", strings.Join(seen, ", "))
		},
	}
}

// sshValue returns what the SSH server says about a setting.
func sshValue(a *answer, key string) (value string, ok bool) {
	a.lines(func(line string) {
		if name, text, found := strings.Cut(line, " "); found && !ok && strings.EqualFold(name, key) {
			value, ok = strings.ToLower(strings.TrimSpace(text)), true
		}
	})
	return value, ok
}

func sshCheck(name string, level int, title, setting, key string, allowed ...string) Check {
	return Check{
		ID: "guest-ssh-" + name, level: level, Title: title, Remedy: "Set `" + setting + "` in sshd_config.", source: sshServer,
		guest: func(a *answer) verdict {
			value, ok := sshValue(a, key)
			if !ok {
				return skipped("the SSH server does not say")
			}
			return passedIf(slices.Contains(allowed, value), "%s %s", key, value)
		},
	}
}

func sshTries(a *answer) verdict {
	const most = 4
	value, ok := sshValue(a, "maxauthtries")
	n, err := strconv.Atoi(value)
	if !ok || err != nil {
		return skipped("the SSH server does not say")
	}
	return passedIf(n > 0 && n <= most, "maxauthtries %d", n)
}

func sshCiphers(a *answer) verdict {
	value, ok := sshValue(a, "ciphers")
	if !ok {
		return skipped("the SSH server does not say")
	}
	for cipher := range strings.SplitSeq(value, ",") {
		for _, broken := range []string{"cbc", "3des", "arcfour"} {
			if strings.Contains(cipher, broken) {
				return failed("%s", cipher)
			}
		}
	}
	return passed("%s", value)
}

// mountCheck checks that a folder is mounted with options.
func mountCheck(name string, level int, path string, options ...string) Check {
	return Check{
		ID: "guest-mount-" + name, level: level, source: mounts,
		Title:  path + " is mounted with " + strings.Join(options, ", "),
		Remedy: "Mount " + path + " with these options in /etc/fstab.",
		guest: func(a *answer) verdict {
			has, mounted := "", false
			a.lines(func(line string) {
				const fields, at, opts = 4, 1, 3
				if part := strings.Fields(line); len(part) >= fields && part[at] == path {
					has, mounted = part[opts], true // the last one is on top
				}
			})
			if !mounted {
				return failed("%s is not a mount of its own", path)
			}
			given := strings.Split(has, ",")
			for _, o := range options {
				if !slices.Contains(given, o) {
					return failed("%s", has)
				}
			}
			return passed("%s", has)
		},
	}
}

// cleartext are ports of services for logins without encryption.
var cleartext = []uint64{21, 23, 512, 513, 514}

// noCleartext reads the kernel's table of TCP sockets.
func noCleartext(a *answer) verdict {
	listening, read := []string{}, false
	a.lines(func(line string) {
		const fields, local, state, listen = 4, 1, 3, "0A"
		part := strings.Fields(line)
		if len(part) < fields {
			return
		}
		address, port, ok := strings.Cut(part[local], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if !ok || err != nil {
			return // the heading
		}
		read = true
		if part[state] == listen && slices.Contains(cleartext, n) && !loopback(address) {
			listening = append(listening, strconv.FormatUint(n, 10))
		}
	})
	if !read && !strings.Contains(a.out, "local_address") {
		return skipped("the guest's table of sockets cannot be read")
	}
	return passedIf(len(listening) == 0, "%d ports %s", len(listening), strings.Join(listening, ", "))
}

// loopback reports whether an address of the kernel's table, hexadecimal in the order of a little-endian
// processor, is a loopback address.
func loopback(address string) bool {
	raw, err := hex.DecodeString(address)
	const v4, last, ipv4Loopback = 4, 3, 127
	if err != nil || len(raw) < v4 {
		return false
	}
	return len(raw) == v4 && raw[last] == ipv4Loopback || address == "00000000000000000000000001000000"
}

// daemonCheck checks that one of some daemons runs.
func daemonCheck(name string, level int, title, remedy string, from *source) Check {
	return Check{
		ID: "guest-daemon-" + name, level: level, Title: title, Remedy: remedy, source: from,
		guest: func(a *answer) verdict {
			if a.code != 0 || len(a.words()) == 0 {
				return failed("none of %s runs", strings.Join(from.argv[1:], ", "))
			}
			return passed("one of %s runs", strings.Join(from.argv[1:], ", "))
		},
	}
}

func hasRules(a *answer) verdict {
	n := 0
	a.lines(func(line string) {
		if strings.HasPrefix(line, "type filter hook input") {
			n++
		}
	})
	return passedIf(n > 0, "%d chains for what arrives", n)
}

func confined(a *answer) verdict {
	for _, line := range a.words() {
		if line == "/sys/fs/selinux/enforce:1" || line == "/sys/module/apparmor/parameters/enabled:Y" {
			return passed("%s", line)
		}
	}
	return failed("neither SELinux enforces, nor is AppArmor enabled")
}
