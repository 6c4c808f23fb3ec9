package demo

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// fileSystems are those that the guest can mount beside what its kernel has built in, each with the
// modules that it needs. They are loaded when one is mounted, since the guest boots sooner without.
// A kernel may lack any of them.
var fileSystems = map[string][]string{
	"xfs": {"xfs"}, "btrfs": {"btrfs"}, "vfat": {"nls_cp437", "nls_ascii", "nls_utf8", "vfat"}, "exfat": {"exfat"},
	"squashfs": {"squashfs"},
}

// copyFileSystems copies the modules of file systems to the guest, and beside them lists of what each
// one takes, in the order in which they are loaded: lib/modules/NAME.order.
func (k kernel) copyFileSystems(ctx context.Context, root string) error {
	paths, err := k.paths()
	if err != nil {
		return err
	}
	to := filepath.Join(root, "lib/modules")
	for kind, names := range fileSystems {
		var order []string
		for _, name := range names {
			if order, err = copyWithDependencies(ctx, paths, name, to, order); err != nil {
				return err
			}
		}
		if len(order) == 0 {
			continue // it is built in, or the kernel lacks it
		}
		list := filepath.Join(to, kind+".order")
		if err := os.WriteFile(list, []byte(strings.Join(order, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // the guest's
			return err
		}
	}
	return nil
}

// paths returns the files of all modules by their names.
func (k kernel) paths() (map[string]string, error) {
	all := map[string]string{}
	err := filepath.WalkDir(filepath.Join(k.modules, "kernel"), func(path string, e fs.DirEntry, err error) error {
		if name, extension, ok := strings.Cut(filepath.Base(path), "."); ok && err == nil && e.Type().IsRegular() {
			if _, known := unpackers["."+extension]; known {
				all[moduleName(name)] = path
			}
		}
		return err
	})
	return all, err
}

// moduleName returns the name by which a module is known to others: that of its file, with underscores.
func moduleName(file string) string { return strings.ReplaceAll(file, "-", "_") }

// copyWithDependencies copies a module and those that it needs, unless the kernel has them built in,
// and appends their names to order.
func copyWithDependencies(
	ctx context.Context, paths map[string]string, name, to string, order []string,
) ([]string, error) {
	from, has := paths[name]
	if !has {
		return order, nil
	}
	for _, done := range order {
		if done == name {
			return order, nil
		}
	}
	copied := filepath.Join(to, name+".ko")
	if _, err := os.Stat(copied); errors.Is(err, os.ErrNotExist) {
		if err := unpackModule(ctx, from, copied); err != nil {
			return order, err
		}
	}
	needed, err := dependencies(copied)
	if err != nil {
		return order, err
	}
	for _, one := range needed {
		if order, err = copyWithDependencies(ctx, paths, one, to, order); err != nil {
			return order, err
		}
	}
	return append(order, name), nil
}

// dependencies returns the names of the modules that a module needs, as it says itself.
func dependencies(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	section := f.Section(".modinfo")
	if section == nil {
		return nil, nil
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var names []string
	for line := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(line), "depends="); ok {
			for name := range strings.SplitSeq(list, ",") {
				if name != "" {
					names = append(names, moduleName(name))
				}
			}
		}
	}
	return names, nil
}
