package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Identity is who the agent is to the control plane.
type Identity struct {
	SiteID     string    `json:"site_id"`
	OrgID      string    `json:"org_id"`
	AgentToken string    `json:"agent_token"`
	EnrolledAt time.Time `json:"enrolled_at"`
	// Empty when the control plane has no certificate authority.
	CertificatePEM string `json:"certificate_pem,omitempty"`
	KeyPEM         string `json:"key_pem,omitempty"`
	CAPEM          string `json:"ca_pem,omitempty"`
	// Refused is why the control plane will have nothing to do with this site any
	// more; empty while it has.
	Refused string `json:"refused,omitempty"`

	certificate *tls.Certificate // nil without one
}

// prepare checks what was read and parses the certificate.
func (id *Identity) prepare() error {
	if id.SiteID == "" || id.AgentToken == "" {
		return errors.New("site_id or agent_token is missing")
	}
	if id.CertificatePEM == "" {
		return nil
	}
	pair, err := tls.X509KeyPair([]byte(id.CertificatePEM), []byte(id.KeyPEM))
	if err != nil {
		return err
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return err
		}
	}
	id.certificate = &pair
	return nil
}

// notAfter is when the certificate ends; zero without one.
func (id *Identity) notAfter() time.Time {
	if id == nil || id.certificate == nil {
		return time.Time{}
	}
	return id.certificate.Leaf.NotAfter
}

// renewalDue reports whether two thirds of the certificate's life are over.
func (id *Identity) renewalDue(now time.Time) bool {
	if id.certificate == nil {
		return false
	}
	leaf := id.certificate.Leaf
	return !now.Before(leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 3 * 2))
}

// keeper holds the identity in memory and in its file.
type keeper struct {
	path string

	mu      sync.Mutex
	current *Identity // nil before the first enrollment; never changed in place
}

// openKeeper reads the identity, if there is one.
func openKeeper(data string) (*keeper, error) {
	k := &keeper{path: filepath.Join(data, "identity.json")}
	text, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot read %s", k.path)
	}
	if k.current, err = parseIdentity(text); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: %s is damaged; restore it from a backup, or remove it to enroll a new site", k.path)
	}
	return k, nil
}

func parseIdentity(text []byte) (*Identity, error) {
	var id Identity
	if err := json.Unmarshal(text, &id); err != nil {
		return nil, err
	}
	return &id, id.prepare()
}

// get returns the identity; nil before the first enrollment.
func (k *keeper) get() *Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// put makes id the identity. When it returns nil, id is on disk.
func (k *keeper) put(id Identity) error {
	if err := id.prepare(); err != nil {
		return fault.Wrap(fault.Invalid, err, "the control plane gave an identity that cannot be used")
	}
	text, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.Replace(k.path, append(text, '\n'), 0o600); err != nil {
		return fault.Wrap(fault.StorageFailed, err, "cannot write %s", k.path)
	}
	k.mu.Lock()
	k.current = &id
	k.mu.Unlock()
	return nil
}

// drop gives the identity up.
func (k *keeper) drop() error {
	if err := durable.Remove(k.path); err != nil {
		return fault.Wrap(fault.StorageFailed, err, "cannot remove %s", k.path)
	}
	k.mu.Lock()
	k.current = nil
	k.mu.Unlock()
	return nil
}
