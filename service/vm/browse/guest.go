package browse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// program is the program in the helper VM; see package volumes of the hypervisor daemon.
const program = "/bin/mainstay-guest"

const (
	// mountLimit bounds finding and mounting file systems: a large journal takes time to be replayed.
	mountLimit = 2 * time.Minute
	listLimit  = 30 * time.Second
	// Exit codes of the program: for errors, for a path that does not exist, and for a volume that is not mounted.
	exitOther    = 1
	exitNotFound = 4
	exitNoVolume = 5
	// Limits of what the program may answer.
	maxVolumes = 256
	maxEntries = 500
)

// Volume is a file system in a backup, or another part of its disk.
type Volume struct {
	Name  string `json:"name"`
	Size  int64  `json:"size"` // in bytes
	Kind  string `json:"kind"` // such as ext4; empty: not known
	Label string `json:"label"`
	Error string `json:"error"` // why its files cannot be read; empty: they can
}

// Entry is what a folder holds.
type Entry struct {
	Name     string    `json:"name"`
	Type     string    `json:"type"` // file, folder, link or other
	Size     int64     `json:"size"` // in bytes
	Mode     string    `json:"mode"` // such as -rw-r--r--
	UID      int64     `json:"uid"`
	GID      int64     `json:"gid"`
	Modified time.Time `json:"modified"`
	Target   string    `json:"target"` // of a link
}

// Page is a part of a folder.
type Page struct {
	Entries []Entry `json:"entries"`
	More    bool    `json:"more"`    // there are entries after these
	Skipped int     `json:"skipped"` // entries of the folder whose names are not UTF-8
}

// has returns an error unless a volume's files can be read.
func (s *session) has(volume string) error {
	i := slices.IndexFunc(s.volumes, func(v Volume) bool { return v.Name == volume })
	if i < 0 {
		return fault.InvalidField("volume", "the backup has no volume %q", volume)
	}
	if why := s.volumes[i].Error; why != "" {
		return fault.New(fault.Conflict, "the files of %s cannot be read: %s", volume, why)
	}
	return nil
}

// find finds the volumes.
func (s *session) find(ctx context.Context) ([]Volume, error) {
	all := []Volume{}
	if err := s.ask(ctx, &all, mountLimit, "volumes"); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i := range all {
		v := &all[i]
		if v.Name == "" || len(v.Name) > 32 || strings.ContainsAny(v.Name, "./\x00") || names[v.Name] || v.Size < 0 {
			return nil, garbage("a volume %q", v.Name)
		}
		names[v.Name] = true
		v.Kind, v.Label, v.Error = short(v.Kind, 32), short(v.Label, 256), short(v.Error, 500)
	}
	if damage := s.disk.Damage(); damage != nil {
		for i := range all {
			if v := &all[i]; v.Error != "" { // what it seems to be may come from blocks that were not read
				v.Error = "a part of the backup is damaged: " + fault.From(damage).Message
			}
		}
	}
	if len(all) > maxVolumes {
		return nil, garbage("%d volumes", len(all))
	}
	return all, nil
}

func (s *session) files(ctx context.Context, volume, path, after string) (Page, error) {
	page := Page{}
	argv := []string{"files", volume, path}
	if after != "" {
		argv = append(argv, after)
	}
	if err := s.ask(ctx, &page, listLimit, argv...); err != nil {
		return page, err
	}
	if len(page.Entries) > maxEntries || page.Skipped < 0 || page.More && len(page.Entries) == 0 {
		return page, garbage("%d entries of a folder", len(page.Entries))
	}
	last := after
	for i := range page.Entries {
		e := &page.Entries[i]
		if e.Name == "" || e.Name <= last || strings.ContainsAny(e.Name, "/\x00") || e.Size < 0 ||
			!slices.Contains([]string{"file", "folder", "link", "other"}, e.Type) {
			return page, garbage("an entry %q", e.Name)
		}
		last = e.Name
		e.Mode, e.Target = short(e.Mode, 32), short(e.Target, maxPath)
	}
	return page, nil
}

// resolved is where a file is in the helper VM.
type resolved struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

func (s *session) resolve(ctx context.Context, volume, path string) (resolved, error) {
	var at resolved
	if err := s.ask(ctx, &at, listLimit, "resolve", volume, path); err != nil {
		return at, err
	}
	if !strings.HasPrefix(at.Path, "/") || len(at.Path) > maxPath || at.Size < 0 {
		return at, garbage("a file at %q", at.Path)
	}
	return at, nil
}

// ask runs the program in the helper VM, and decodes its answer. If the guest has failed or rebooted, for example
// because its kernel panicked on a damaged file system, the session ends, and the next request starts another VM.
func (s *session) ask(ctx context.Context, out any, limit time.Duration, argv ...string) error {
	ended, err := s.driver.Exec(ctx, s.at, append([]string{program}, argv...), limit)
	switch {
	case err != nil && s.closed():
		return errClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case (err != nil || ended.ExitCode == exitOther) && s.disk.Damage() != nil:
		return s.disk.Damage()
	case err != nil:
		s.end(errClosed)
		return errBroken(err)
	case ended.ExitCode == exitNoVolume:
		s.end(errClosed)
		return errBroken(errors.New(ended.Stderr))
	case ended.ExitCode == exitNotFound:
		return fault.New(fault.NotFound, "the backup has no such file or folder")
	case ended.ExitCode != 0:
		return fault.New(fault.Conflict, "%s", short(strings.TrimSpace(ended.Stderr), 500))
	}
	d := json.NewDecoder(bytes.NewReader([]byte(ended.Stdout)))
	if err := d.Decode(out); err != nil {
		return garbage("no JSON: %v", err)
	}
	return nil
}

// closed reports whether the session is over.
func (s *session) closed() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// errBroken is the fault for a helper VM that failed or rebooted.
func errBroken(err error) error {
	return fault.Wrap(fault.Unavailable, err, "the helper VM failed while it read the backup, perhaps because of a damaged "+
		"file system; try again to read it with a new one")
}

func garbage(format string, args ...any) error {
	return fault.New(fault.Unavailable, "the VM that reads the backup answers with "+format, args...)
}

// short bounds a text of the helper VM, and makes it UTF-8 without control characters.
func short(text string, most int) string {
	text = strings.ToValidUTF8(text[:min(len(text), most)], "")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, text)
}
