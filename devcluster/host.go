package main

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// What a node leaves in the host, beside its processes: mounts in its folder, and control groups.

const controlGroups = "/sys/fs/cgroup"

// hierarchies returns the folders of the host's control groups: one for each controller in version 1.
func hierarchies() (all []string, err error) {
	if _, err := os.Stat(filepath.Join(controlGroups, "cgroup.controllers")); err == nil {
		return []string{controlGroups}, nil
	}
	entries, err := os.ReadDir(controlGroups)
	for _, e := range entries {
		if path := filepath.Join(controlGroups, e.Name()); e.IsDir() {
			all = append(all, path)
		}
	}
	return all, err
}

// addGroup makes a control group, unless the host has it.
func addGroup(name string) error {
	all, err := hierarchies()
	for _, h := range all {
		if e := os.Mkdir(filepath.Join(h, name), 0o755); e != nil && !errors.Is(e, fs.ErrExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// removeGroup removes a control group and those in it, of which none has processes.
func removeGroup(name string) error {
	all, err := hierarchies()
	for _, h := range all {
		var groups []string
		e := filepath.WalkDir(filepath.Join(h, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return err
		})
		if e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		for _, path := range slices.Backward(groups) {
			if e := syscall.Rmdir(path); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, &fs.PathError{Op: "rmdir", Path: path, Err: e})
			}
		}
	}
	return err
}

// unmountBelow removes all mounts in a folder.
func unmountBelow(dir string) error {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var points []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// id parent major:minor root point ...; blanks are \040
		if fields := strings.Fields(lines.Text()); len(fields) > 4 {
			point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
			if point == dir || strings.HasPrefix(point, dir+"/") {
				points = append(points, point)
			}
		}
	}
	for _, point := range slices.Backward(points) { // those that are on others come later
		if e := syscall.Unmount(point, syscall.MNT_DETACH); e != nil && !errors.Is(e, syscall.EINVAL) {
			err = errors.Join(err, &fs.PathError{Op: "unmount", Path: point, Err: e})
		}
	}
	return err
}
