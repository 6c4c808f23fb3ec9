package app

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// credentials are the secrets that dev mode makes on its first start, one object
// per service.
type credentials struct {
	Edge edgeCredentials `json:"edge"`
}

type edgeCredentials struct {
	AdminUsername   string `json:"admin_username"`
	AdminPassword   string `json:"admin_password"`
	AdminToken      string `json:"admin_token"`
	ViewerToken     string `json:"viewer_token"`
	EnrollmentToken string `json:"enrollment_token"`
}

// loadCredentials reads the file in dir, or makes it with mode 0600.
func loadCredentials(dir string) (c credentials, path string, err error) {
	path = filepath.Join(dir, "credentials.json")
	b, err := os.ReadFile(path)
	if err == nil {
		if err := json.Unmarshal(b, &c); err != nil {
			return c, path, fault.Wrap(fault.Invalid, err, "%s is no valid JSON; mend it, or remove it to have new credentials made", path)
		}
		if (c.Edge == edgeCredentials{}) {
			return c, path, fault.New(fault.Invalid, "%s has no credentials for edge; remove it to have new ones made", path)
		}
		return c, path, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return c, path, fault.Wrap(fault.Invalid, err, "cannot read %s", path)
	}
	c.Edge = edgeCredentials{AdminUsername: "admin", AdminPassword: auth.NewToken(""), AdminToken: auth.NewToken("madm_"),
		ViewerToken: auth.NewToken("mvwr_"), EnrollmentToken: auth.NewToken("menr_")}
	b, err = json.MarshalIndent(c, "", "  ")
	if err != nil {
		return c, path, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, path, fault.Wrap(fault.Invalid, err, "cannot make the folder %s", dir)
	}
	if err := durable.Create(path, append(b, '\n'), 0o600); err != nil {
		return c, path, fault.Wrap(fault.Invalid, err, "cannot write %s", path)
	}
	// Another process may have been first.
	return loadCredentials(dir)
}
