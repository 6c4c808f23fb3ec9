package main

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// header reports where and how the numbers were measured.
func (r *report) header(dir string) {
	r.say("# Edge control plane: measurements\n")
	command := "go run ./edge"
	if len(os.Args) > 1 {
		command += " " + strings.Join(os.Args[1:], " ")
	}
	r.table([]string{"What", "Value"}, [][]string{
		{"Date", time.Now().UTC().Format(time.RFC3339)},
		{"Command", "`" + command + "`"},
		{"CPU", cpuModel()},
		{"Cores", strconv.Itoa(runtime.NumCPU())},
		{"Kernel", kernel()},
		{"Go", runtime.Version()},
		{"File system of the data", fileSystem(dir)},
		{"Load average at start", firstLine("/proc/loadavg")},
	})
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string { return runtime.GOOS + " " + firstLine("/proc/sys/kernel/osrelease") }

// fileSystem returns the type of the innermost mount that contains dir.
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "unknown"
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "unknown"
	}
	kind, longest := "unknown", 0
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) < longest {
			continue
		}
		if rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(f[1], "/")); ok && (rest == "" || rest[0] == '/') {
			kind, longest = f[2]+" on "+f[0], len(f[1])
		}
	}
	return kind
}

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// fileLimit returns how many files, and so connections, this process may have open.
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return limit.Cur // Go has raised it to the hard limit
}
