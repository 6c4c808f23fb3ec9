package app

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// credentials are the secrets that dev mode generates on its first start, by service and name.
type credentials map[string]map[string]string

// loadCredentials reads the file in dir, or creates it with mode 0600.
func loadCredentials(dir string) (c credentials, path string, err error) {
	path = filepath.Join(dir, "credentials.json")
	c, err = readCredentials(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeCredentials(path); err != nil {
			return nil, path, err
		}
		c, err = readCredentials(path) // another process may have been first
	}
	if err == nil && c.complete() { // the file may be older than a service
		err = c.write(path, durable.Replace)
	}
	return c, path, err
}

func readCredentials(path string) (c credentials, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "cannot read %s", path)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fault.Wrap(fault.Invalid, err,
			"%s is not valid JSON; mend it, or remove it to have new credentials made", path)
	}
	if !slices.ContainsFunc(Units(), func(u Unit) bool { return len(c[u.Name]) > 0 }) {
		return nil, fault.New(fault.Invalid, "%s has no credentials; remove it to have new ones made", path)
	}
	return c, nil
}

func makeCredentials(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(fault.Invalid, err, "cannot make the folder %s", dir)
	}
	c := credentials{}
	c.complete()
	return c.write(path, durable.Create)
}

// complete generates credentials for services that have none, and reports whether there were any.
func (c credentials) complete() (added bool) {
	for _, u := range Units() {
		if u.Credentials != nil && len(c[u.Name]) == 0 {
			c[u.Name] = u.Credentials()
			added = true
		}
	}
	return added
}

func (c credentials) write(path string, write func(path string, content []byte, mode fs.FileMode) error) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := write(path, append(b, '\n'), 0o600); err != nil {
		return fault.Wrap(fault.Invalid, err, "cannot write %s", path)
	}
	return nil
}
