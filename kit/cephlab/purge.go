//go:build linux

package cephlab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// made are the names of what a cluster makes in its folder, but for those of its OSDs.
var made = []string{recordFile, lockFile, readyFile, confFile, keyringFile, accessFile, "mon", "mgr", "log", "run"}

// own reports whether a name in the folder is that of something a cluster has made.
func own(name string) bool {
	return slices.Contains(made, name) || strings.HasPrefix(name, "osd.") || strings.Contains(name, begun) ||
		unfinished(name)
}

// unfinished reports whether a name is that of a file that a killed process has left half written (package durable).
func unfinished(name string) bool {
	return strings.HasPrefix(name, durable.TempPrefix) ||
		slices.ContainsFunc(made, func(file string) bool { return strings.HasPrefix(name, "."+file+"-") })
}

// Purge stops the cluster and removes it with all data. What else is in its folder stays, and its names are returned.
// If something is mounted below the folder, it is a fault of kind Conflict, and nothing is removed.
func (l *Lab) Purge(ctx context.Context) (kept []string, err error) {
	unlock, err := lock(l.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := unmounted(l.Dir); err != nil {
		return nil, err
	}
	if err := l.down(ctx); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(l.Dir)
	if err != nil {
		return nil, err
	}
	// The record goes last: without it, nobody would know what the rest is.
	for _, e := range entries {
		switch name := e.Name(); {
		case !own(name):
			kept = append(kept, name)
		case name != recordFile:
			if err := os.RemoveAll(l.path(name)); err != nil {
				return kept, err
			}
		}
	}
	if err := os.Remove(l.path(recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kept, err
	}
	if err := os.Remove(l.Dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		return kept, err
	}
	return kept, nil
}

// unmounted refuses a folder below which something is mounted: what is removed would be somebody else's.
func unmounted(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	all := bufio.NewScanner(bytes.NewReader(raw))
	for all.Scan() {
		f := strings.Fields(all.Text())
		if len(f) < 5 {
			continue
		}
		// The kernel writes spaces and the like as octal numbers. Folders of clusters have none.
		if at := f[4]; strings.HasPrefix(at, dir+"/") {
			return fault.New(fault.Conflict, "something is mounted at %s; unmount it first", at)
		}
	}
	return all.Err()
}
