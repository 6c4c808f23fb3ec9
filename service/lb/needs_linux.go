package lb

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Needs checks the requirements on this machine. bpfDir is the mount point of the BPF file system;
// if it is empty, that file system is not used.
func Needs(bpfDir string) []Need {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		status = nil // then no capability counts as present
	}
	effective := effectiveCapabilities(string(status))
	needs := []Need{capabilities(effective)}
	if bpfDir != "" {
		needs = append(needs, bpfFileSystem(bpfDir, effective))
	}
	return needs
}

// needed are the capabilities for loading and attaching the program. CAP_SYS_ADMIN includes the
// first two.
var needed = []struct {
	name string
	bit  int
}{{"CAP_BPF", unix.CAP_BPF}, {"CAP_PERFMON", unix.CAP_PERFMON}, {"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}}

func capabilities(effective uint64) Need {
	n := Need{
		Name: "capabilities",
		Fix:  "run it as root, or give it CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, as AmbientCapabilities= in a systemd unit does",
	}
	var lacking []string
	for _, c := range needed {
		if !has(effective, c.bit) && (c.bit == unix.CAP_NET_ADMIN || !has(effective, unix.CAP_SYS_ADMIN)) {
			lacking = append(lacking, c.name)
		}
	}
	n.Met, n.Detail = len(lacking) == 0, "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN"
	if !n.Met {
		n.Detail = "without " + strings.Join(lacking, ", ")
	}
	return n
}

func bpfFileSystem(dir string, effective uint64) Need {
	n := Need{Name: "BPF file system", Fix: "mount -t bpf bpf " + dir}
	var stat unix.Statfs_t
	switch err := unix.Statfs(dir, &stat); {
	case err != nil:
		n.Detail = fmt.Sprintf("%s: %v", dir, err)
	case stat.Type == unix.BPF_FS_MAGIC:
		n.Met, n.Detail = true, dir
	case has(effective, unix.CAP_SYS_ADMIN):
		n.Met, n.Detail = true, dir+", mounted when needed"
	default:
		n.Detail = "not mounted at " + dir
	}
	return n
}

func has(effective uint64, bit int) bool { return effective&(1<<bit) != 0 }

// effectiveCapabilities parses /proc/PID/status. It returns 0 if the text has no valid CapEff line.
func effectiveCapabilities(status string) uint64 {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			if n, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64); err == nil {
				return n
			}
		}
	}
	return 0
}
