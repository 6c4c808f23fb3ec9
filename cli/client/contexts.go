package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/kit/durable"
)

// Contexts are the installations that a person works with. They are stored in a file that only its
// owner can read, since it holds tokens.
type Contexts struct {
	Current string             `json:"current"`
	All     map[string]Context `json:"contexts"`
}

// Context is one installation: how to reach each of its services, by Service.Unit.
type Context map[string]Place

// Place is how to reach a service.
type Place struct {
	Server string `json:"server"`
	Token  string `json:"token,omitempty"`
	CAFile string `json:"ca_file,omitempty"`
}

// CheckContextName says what is wrong with the name of a context.
func CheckContextName(name string) error {
	const most = 63
	valid := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	}
	if name == "" || len(name) > most || strings.ContainsFunc(name, func(r rune) bool { return !valid(r) }) {
		return exit.Usagef("NAME must be 1 to %d letters, digits, dots, dashes and underscores, not %q", most, name)
	}
	return nil
}

// maxContexts is the maximum size of the file, in bytes.
const maxContexts = 1 << 20

// contextsFile returns the path of the file.
func (env Environment) contextsFile() (string, error) {
	dir := env.ConfigDir
	if dir == "" {
		home, err := os.UserConfigDir()
		if err != nil {
			return "", fmt.Errorf("contexts: %w", err)
		}
		dir = filepath.Join(home, "mainstay")
	}
	return filepath.Join(dir, "contexts.json"), nil
}

// Contexts reads the contexts. It returns none if there is no file.
func (env Environment) Contexts() (Contexts, error) {
	none := Contexts{All: map[string]Context{}}
	path, err := env.contextsFile()
	if err != nil {
		return none, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		// The folder of somebody else, as after `sudo -u nobody`, has no contexts for this person.
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("contexts: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return none, exit.Hinted(
			fmt.Errorf("contexts: others can read %s, which holds tokens", path), "chmod 600 "+path,
		)
	}
	if info.Size() > maxContexts || !info.Mode().IsRegular() {
		return none, fmt.Errorf("contexts: %s is not a file of at most %d bytes", path, maxContexts)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return none, fmt.Errorf("contexts: %w", err)
	}
	read := Contexts{}
	if err := json.Unmarshal(raw, &read); err != nil {
		return none, fmt.Errorf("contexts: %s: %w", path, err)
	}
	if read.All == nil {
		read.All = map[string]Context{}
	}
	return read, nil
}

// ChangeContexts reads the contexts, has them changed, and stores them, unless change fails. Of several
// processes, one after the other does so.
func (env Environment) ChangeContexts(change func(*Contexts) error) error {
	path, err := env.contextsFile()
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	defer func() { _ = lock.Close() }() // and with it the lock is released
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("contexts: lock: %w", err)
	}
	all, err := env.Contexts()
	if err != nil {
		return err
	}
	if err := change(&all); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := errors.Join(removeHalf(dir), durable.Replace(path, append(raw, '\n'), 0o600)); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}

// removeHalf removes what a process left that was killed while it stored contexts: it may hold tokens.
// The lock must be held.
func removeHalf(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, durable.TempPrefix+"*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// Place returns how the current context reaches a service, or the zero Place.
func (env Environment) Place(unit string) (Place, error) {
	all, err := env.Contexts()
	if err != nil {
		return Place{}, err
	}
	return all.All[all.Current][unit], nil
}

// TokenFor returns the place's token if server is the place's server. A token is never sent to
// another server.
func (p Place) TokenFor(server *url.URL) string {
	own, err := url.Parse(p.Server)
	if err != nil || own.Scheme != server.Scheme || own.Host != server.Host {
		return ""
	}
	return p.Token
}
