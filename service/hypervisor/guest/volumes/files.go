//go:build linux

package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// PageSize is the most entries that Files returns at once.
const PageSize = 500

// Entry is what a folder holds.
type Entry struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"` // file, folder, link or other
	Size     int64     `json:"size"` // of a file, in bytes
	Mode     string    `json:"mode"` // such as -rw-r--r--
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target,omitempty"` // of a link
}

// Page is a part of a folder.
type Page struct {
	Entries []Entry `json:"entries"`
	More    bool    `json:"more"`    // there are entries after these
	Skipped int     `json:"skipped"` // entries of the folder whose names are not UTF-8
}

// Files returns the entries of a folder of a volume whose names come after a name, in order. The
// process cannot leave the volume afterwards.
func (p Paths) Files(volume, path, after string) (Page, error) {
	page := Page{Entries: []Entry{}}
	if _, err := p.enter(volume); err != nil {
		return page, err
	}
	names, err := names(path)
	if err != nil {
		return page, public(err)
	}
	for _, name := range names {
		switch {
		case !utf8.ValidString(name):
			page.Skipped++
			continue
		case name <= after:
			continue
		case len(page.Entries) == PageSize:
			page.More = true
			return page, nil
		}
		e, err := entry(filepath.Join(path, name), name)
		if err != nil {
			return page, public(err)
		}
		page.Entries = append(page.Entries, e)
	}
	return page, nil
}

func names(path string) ([]string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	all, err := f.Readdirnames(-1)
	sort.Strings(all)
	return all, err
}

// kinds are the types of entries that are shown by name.
var kinds = map[fs.FileMode]string{0: "file", fs.ModeDir: "folder", fs.ModeSymlink: "link"}

func entry(path, name string) (Entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Name: name, Type: kinds[info.Mode().Type()], Size: info.Size(), Mode: modeText(info.Mode())}
	// JSON has no years beyond 9999, and a damaged file system has any.
	if e.Modified = info.ModTime().UTC(); e.Modified.Year() > 9999 || e.Modified.Year() < 0 {
		e.Modified = time.Time{}
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID = s.Uid, s.Gid
	}
	switch e.Type {
	case "":
		e.Type = "other"
	case "link":
		target, err := os.Readlink(path)
		if err != nil {
			return e, err
		}
		e.Target = strings.ToValidUTF8(target, "\uFFFD")
	}
	return e, nil
}

// Resolved is where a path leads.
type Resolved struct {
	Path string `json:"path"` // in the guest, without links
	Size int64  `json:"size"` // in bytes
}

// Resolve returns where the file is that a path in a volume leads to. The process cannot leave the
// volume afterwards.
func (p Paths) Resolve(volume, path string) (Resolved, error) {
	root, err := p.enter(volume)
	if err != nil {
		return Resolved{}, err
	}
	real, err := filepath.EvalSymlinks(filepath.Join("/", path))
	if err != nil {
		return Resolved{}, public(err)
	}
	info, err := os.Lstat(real)
	if err != nil {
		return Resolved{}, public(err)
	}
	if !info.Mode().IsRegular() {
		return Resolved{}, errors.New("the path does not lead to a file")
	}
	return Resolved{Path: filepath.Join(root, real), Size: info.Size()}, nil
}

// enter makes a volume the root of this process, and returns where it was.
func (p Paths) enter(volume string) (root string, err error) {
	if volume == "" || strings.ContainsAny(volume, "./") {
		return "", ErrNoVolume
	}
	root = p.where(volume)
	mounted, err := isMountPoint(root)
	if err != nil {
		return "", err
	}
	if !mounted {
		return "", ErrNoVolume
	}
	if err := unix.Chroot(root); err != nil {
		return "", err
	}
	return root, os.Chdir("/")
}

// ErrNotFound is returned for paths that do not exist.
var ErrNotFound = errors.New("there is no such file or folder")

// ErrNoVolume is returned for volumes that are not mounted.
var ErrNoVolume = errors.New("there is no such volume, or its files cannot be read")

// public returns an error without the paths that the system's errors have.
func public(err error) error {
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case errors.Is(err, unix.ENOTDIR):
		return errors.New("the path does not lead to a folder")
	case errors.Is(err, unix.ELOOP), !errors.As(err, &at): // filepath.EvalSymlinks has one error of its own
		return errors.New("the links of the path lead in a circle")
	}
	return fmt.Errorf("what the path leads to cannot be read: %w", at.Err)
}
