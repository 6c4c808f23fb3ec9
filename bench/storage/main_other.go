//go:build !linux || !ceph

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: it is built with cgo and the tags ceph and pacific, on Linux: make bench-storage")
	os.Exit(1)
}
