package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Descendants returns the PIDs of all processes below one, read from /proc.
func Descendants(pid int) []int {
	var all []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is valid
	for _, list := range lists {
		raw, err := os.ReadFile(list) //nolint:gosec // of /proc
		if err != nil {
			continue // the process has ended
		}
		for field := range strings.FieldsSeq(string(raw)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(append(all, child), Descendants(child)...)
			}
		}
	}
	return all
}
