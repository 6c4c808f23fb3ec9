package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// credentials are the secrets that dev mode makes on its first start, one object
// per service.
type credentials struct {
	Edge       edgeCredentials       `json:"edge"`
	LB         lbCredentials         `json:"lb"`
	Hypervisor hypervisorCredentials `json:"hypervisor"`
}

type hypervisorCredentials struct {
	Token      string `json:"token"`
	FleetToken string `json:"fleet_token"`
}

func newHypervisorCredentials() hypervisorCredentials {
	return hypervisorCredentials{Token: auth.NewToken("mhva_"), FleetToken: auth.NewToken("mhvf_")}
}

type edgeCredentials struct {
	AdminUsername   string `json:"admin_username"`
	AdminPassword   string `json:"admin_password"`
	AdminToken      string `json:"admin_token"`
	ViewerToken     string `json:"viewer_token"`
	EnrollmentToken string `json:"enrollment_token"`
}

type lbCredentials struct {
	APIKey      string `json:"api_key"`
	ReadonlyKey string `json:"readonly_key"`
}

func newLBCredentials() lbCredentials {
	return lbCredentials{APIKey: auth.NewToken("mlba_"), ReadonlyKey: auth.NewToken("mlbr_")}
}

func newEdgeCredentials() edgeCredentials {
	return edgeCredentials{AdminUsername: "admin", AdminPassword: auth.NewToken(""), AdminToken: auth.NewToken("madm_"),
		ViewerToken: auth.NewToken("mvwr_"), EnrollmentToken: auth.NewToken("menr_")}
}

// firstCredentials gives credentials to an edge control plane that nobody could sign in to. They are
// made on the first start and kept in the data folder.
func firstCredentials(cfg *edge.Config, log *slog.Logger) error {
	if cfg.AdminToken != "" || cfg.AdminPassword != "" || cfg.OIDC.Issuer != "" {
		return nil
	}
	creds, path, err := loadCredentials(cfg.Data)
	if err != nil {
		return err
	}
	log.Warn("no credentials are configured; those in the file are used", "service", "edge", "file", path)
	cfg.AdminUsername, cfg.AdminPassword, cfg.AdminToken = creds.Edge.AdminUsername, creds.Edge.AdminPassword, creds.Edge.AdminToken
	cfg.ViewerToken = cmp.Or(cfg.ViewerToken, creds.Edge.ViewerToken)
	cfg.EnrollmentToken = cmp.Or(cfg.EnrollmentToken, creds.Edge.EnrollmentToken)
	return nil
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
		// The file may be from before there was a service.
		before := c
		if (c.LB == lbCredentials{}) {
			c.LB = newLBCredentials()
		}
		if (c.Hypervisor == hypervisorCredentials{}) {
			c.Hypervisor = newHypervisorCredentials()
		}
		if c == before {
			return c, path, nil
		}
		return c, path, writeCredentials(c, path, durable.Replace)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return c, path, fault.Wrap(fault.Invalid, err, "cannot read %s", path)
	}
	c.Edge = newEdgeCredentials()
	c.LB, c.Hypervisor = newLBCredentials(), newHypervisorCredentials()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return c, path, fault.Wrap(fault.Invalid, err, "cannot make the folder %s", dir)
	}
	if err := writeCredentials(c, path, durable.Create); err != nil {
		return c, path, err
	}
	// Another process may have been first.
	return loadCredentials(dir)
}

func writeCredentials(c credentials, path string, write func(path string, content []byte, mode fs.FileMode) error) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := write(path, append(b, '\n'), 0o600); err != nil {
		return fault.Wrap(fault.Invalid, err, "cannot write %s", path)
	}
	return nil
}
