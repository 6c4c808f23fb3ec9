package compliance

import (
	"fmt"
	"strconv"
	"strings"
)

// parameter is a parameter of the kernel that a check looks at.
type parameter struct {
	id, title string
	name      string // as sysctl has it
	level     int
	least     int
	most      int
}

// parameters of a kernel, with the values that are good.
var parameters = []parameter{
	{"aslr", "The places of programs in memory are random", "kernel.randomize_va_space", 1, 2, 2},
	{"protected-symlinks", "Links of others in shared folders are not followed", "fs.protected_symlinks", 1, 1, 1},
	{"protected-hardlinks", "Nobody links to the files of others", "fs.protected_hardlinks", 1, 1, 1},
	{"suid-dumps", "Programs with more rights leave no memory dumps that users can read", "fs.suid_dumpable", 1, 0, 0},
	{"syncookies", "Floods of connections are withstood with SYN cookies", "net.ipv4.tcp_syncookies", 1, 1, 2},
	{"source-routes", "Packets do not choose their own route", "net.ipv4.conf.all.accept_source_route", 1, 0, 0},
	{"redirects", "Strangers do not change routes", "net.ipv4.conf.all.accept_redirects", 1, 0, 0},
	{"broadcast-pings", "Pings to everybody are not answered", "net.ipv4.icmp_echo_ignore_broadcasts", 1, 1, 1},
	{"reverse-path", "Packets with a forged sender are dropped", "net.ipv4.conf.all.rp_filter", 2, 1, 2},
	{"send-redirects", "The guest does not act as a router: it sends no redirects", "net.ipv4.conf.all.send_redirects", 2, 0, 0},
	{"forwarding", "The guest does not act as a router: it forwards nothing", "net.ipv4.ip_forward", 2, 0, 0},
	{"martians", "Packets with impossible addresses are logged", "net.ipv4.conf.all.log_martians", 2, 1, 1},
	{"kernel-addresses", "Addresses of the kernel are hidden", "kernel.kptr_restrict", 2, 1, 2},
	{"kernel-log", "Only root reads the log of the kernel", "kernel.dmesg_restrict", 2, 1, 1},
	{"ptrace", "Programs do not look into each other", "kernel.yama.ptrace_scope", 2, 1, 3},
}

// path returns the file of a parameter.
func (p *parameter) path() string { return "/proc/sys/" + strings.ReplaceAll(p.name, ".", "/") }

// kernelChecks are the checks of a guest's kernel parameters. All come from one program.
func kernelChecks() (out []Check) {
	read := &source{codes: []int{1, 2}, argv: []string{"grep", "-Hs", ""}} // 2: the kernel does not have one of them
	for _, p := range parameters {
		read.argv = append(read.argv, p.path())
		out = append(out, Check{
			ID: "guest-kernel-" + p.id, level: p.level, Title: p.title,
			Remedy: fmt.Sprintf("Set %s = %d in /etc/sysctl.d.", p.name, p.least), source: read,
			guest: func(a *answer) verdict { return p.judge(a) },
		})
	}
	return out
}

func (p *parameter) judge(a *answer) verdict {
	text, found := "", false
	a.lines(func(line string) {
		if value, ok := strings.CutPrefix(line, p.path()+":"); ok && !found {
			text, found = strings.TrimSpace(value), true
		}
	})
	if !found {
		return skipped("the kernel does not have %s", p.name)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return skipped("the value of %s cannot be read", p.name)
	}
	return passedIf(p.least <= n && n <= p.most, "%s = %d", p.name, n)
}
