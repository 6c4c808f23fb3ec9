package agent

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/agent/answer"
)

// Identity identifies the agent to the control plane.
type Identity struct {
	SiteID     string    `json:"site_id"`
	OrgID      string    `json:"org_id"`
	AgentToken string    `json:"agent_token"`
	EnrolledAt time.Time `json:"enrolled_at"`
	// The certificate fields are empty if the control plane has no certificate authority.
	CertificatePEM string `json:"certificate_pem,omitempty"`
	KeyPEM         string `json:"key_pem,omitempty"`
	CAPEM          string `json:"ca_pem,omitempty"`
	// Refused is why the control plane has revoked this site; empty if it has not.
	Refused string `json:"refused,omitempty"`

	certificate *tls.Certificate // nil if there is none
}

// prepare checks the fields and parses the certificate.
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

// check validates an identity that the control plane has just issued. An invalid one would replace
// one that works.
func (id Identity) check() error {
	for _, text := range []string{id.SiteID, id.AgentToken} {
		if text == "" || len(text) > maxIdentityText ||
			strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return answer.NewInvalid(
				"site_id and agent_token must be 1 to %d visible ASCII characters",
				maxIdentityText,
			)
		}
	}
	if id.CertificatePEM == "" && id.CAPEM == "" {
		return nil
	}
	if err := id.prepare(); err != nil {
		return answer.NewInvalid("the certificate is not for the key that was sent: %v", err)
	}
	if id.certificate == nil {
		return answer.NewInvalid("there is an authority, but no certificate")
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(id.CAPEM)) {
		return answer.NewInvalid("ca_pem is not a certificate")
	}
	leaf := id.certificate.Leaf
	if _, err := leaf.Verify(
		x509.VerifyOptions{
			Roots:       authorities,
			CurrentTime: leaf.NotBefore,
			KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		},
	); err != nil {
		return answer.NewInvalid("the certificate is not signed by the authority that came with it: %v", err)
	}
	return nil
}

// maxIdentityText is the maximum length of site IDs and tokens, in bytes.
const maxIdentityText = 1024

// notAfter returns when the certificate expires, or zero if there is none.
func (id *Identity) notAfter() time.Time {
	if id == nil || id.certificate == nil {
		return time.Time{}
	}
	return id.certificate.Leaf.NotAfter
}

// renewalDue reports whether two thirds of the certificate's lifetime have passed.
func (id *Identity) renewalDue(now time.Time) bool {
	if id.certificate == nil {
		return false
	}
	leaf := id.certificate.Leaf
	return !now.Before(leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 3 * 2))
}

const identityFile = "identity.json"

// keeper holds the identity in memory and in its file.
type keeper struct {
	path string

	mu      sync.Mutex
	current *Identity // nil before the first enrollment; never modified in place
}

// openKeeper reads the identity if there is one.
func openKeeper(data string) (*keeper, error) {
	k := &keeper{path: filepath.Join(data, identityFile)}
	text, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot read %s", k.path)
	}
	if k.current, err = parseIdentity(text); err != nil {
		return nil, fault.Wrap(
			fault.Invalid,
			err,
			"data: %s is damaged; restore it from a backup, or remove it to enroll a new site",
			k.path,
		)
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

// get returns the identity, or nil before the first enrollment.
func (k *keeper) get() *Identity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// put replaces the identity. When it returns nil, id is on disk.
func (k *keeper) put(id Identity) error {
	if err := id.prepare(); err != nil {
		return fault.Wrap(fault.Invalid, err, "the control plane gave an identity that cannot be used")
	}
	if err := durable.Remove(k.path + ".room"); err != nil {
		return err
	}
	if before := k.get(); before != nil && before.SiteID != id.SiteID {
		// Keep the old identity: if the control plane is restored, it may know that site again.
		if err := writeIdentity(strings.TrimSuffix(k.path, ".json")+".previous.json", *before); err != nil {
			return err
		}
	}
	if err := writeIdentity(k.path, id); err != nil {
		return err
	}
	k.mu.Lock()
	k.current = &id
	k.mu.Unlock()
	return nil
}

// identityRoom is the disk space that is reserved for an identity. It is more than an identity and
// its predecessor take.
const identityRoom = 64 << 10

// secureRoom reserves disk space for an identity. put releases it.
func (k *keeper) secureRoom() error {
	if info, err := os.Stat(k.path + ".room"); err == nil && info.Size() == identityRoom {
		return nil
	}
	room := make([]byte, identityRoom)
	_, _ = rand.Read(room) // some file systems allocate no space for zeros
	return durable.Replace(k.path+".room", room, 0o600)
}

func writeIdentity(path string, id Identity) error {
	text, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.Replace(path, append(text, '\n'), 0o600); err != nil {
		return fault.Wrap(fault.StorageFailed, err, "cannot write %s", path)
	}
	return nil
}
