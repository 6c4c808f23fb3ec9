package app

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
)

// releaseUnused releases unused memory. Most of it is the program itself: the kernel maps far more
// of the file than is used, above all at start, and used pages are faulted in again from the page
// cache.
func releaseUnused() error {
	debug.FreeOSMemory()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	smaps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer func() { _ = smaps.Close() }() // read only
	var errs []error
	for _, m := range unchanged(bufio.NewScanner(smaps), program) {
		if _, _, errno := syscall.Syscall(
			syscall.SYS_MADVISE, m.begin, m.end-m.begin, syscall.MADV_DONTNEED,
		); errno != 0 {
			errs = append(errs, fmt.Errorf("madvise: %w", errno))
		}
	}
	return errors.Join(errs...)
}

// mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// unchanged finds, in the text of /proc/PID/smaps, the mappings of the program's file that are not
// writable and have no modified pages. A loader that has relocated something leaves modified pages,
// and they would be lost.
func unchanged(smaps *bufio.Scanner, program string) (found []mapping) {
	var m mapping
	candidate := false
	for smaps.Scan() {
		line := smaps.Text()
		var next mapping
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &next.begin, &next.end, &mode); n == 3 {
			m = next
			candidate = !strings.Contains(mode, "w") && strings.HasSuffix(line, " "+program)
			continue
		}
		if size, ok := strings.CutPrefix(line, "Anonymous:"); ok && candidate && strings.TrimSpace(size) == "0 kB" {
			found = append(found, m)
		}
	}
	return found
}
