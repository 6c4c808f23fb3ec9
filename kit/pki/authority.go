package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	keyFile  = "ca.key"
	certFile = "ca.crt"

	typeKey  = "PRIVATE KEY" // PKCS #8, RFC 7468
	typeCert = "CERTIFICATE"

	authorityYears = 10
	// backdate allows for relying parties whose clock is a little slow.
	backdate     = 5 * time.Minute
	maxFileBytes = 64 << 10
	maxNameBytes = 64 // ub-common-name, RFC 5280, appendix A.1
)

// Authority signs certificates and revocation lists. It is immutable and safe for
// concurrent use.
type Authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// LoadOrCreate returns the authority stored in dir as ca.key (PEM PKCS #8, mode 0600) and ca.crt.
// It creates what is missing: the directory, the key, and a certificate for name valid for ten
// years from now. name is the common name, 1 to 64 bytes; an existing certificate keeps its name.
//
// It refuses a key that other users can read, a certificate without its key, a key and certificate
// that do not match, a certificate that is not an authority's, and an expired one, with a fault of
// kind Invalid that states the remedy. Failed reads and writes are faults of kind StorageFailed.
// dir must be on a file system with hard links, which decide between concurrent processes.
func LoadOrCreate(dir, name string, now time.Time) (*Authority, error) {
	if name == "" || len(name) > maxNameBytes {
		return nil, fault.InvalidField("name", "must be 1 to %d bytes, not %d", maxNameBytes, len(name))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storage(err, "create the directory %s", dir)
	}
	key, err := loadOrCreateKey(dir)
	if err != nil {
		return nil, err
	}
	cert, err := loadOrCreateCert(dir, name, key, now)
	if err != nil {
		return nil, err
	}
	a := &Authority{key: key, cert: cert}
	if err := a.check(dir, now); err != nil {
		return nil, err
	}
	return a, nil
}

// CertificatePEM returns the authority's certificate, for relying parties to trust.
func (a *Authority) CertificatePEM() string { return encodePEM(typeCert, a.cert.Raw) }

// PublicKeyDER returns the authority's public key as in its certificate (SubjectPublicKeyInfo).
func (a *Authority) PublicKeyDER() []byte { return a.cert.RawSubjectPublicKeyInfo }

// Exists reports whether dir holds an authority's key.
func Exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, keyFile))
	return err == nil
}

// Pool returns a pool that holds only the authority's certificate, for tls.Config.ClientCAs.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// NotAfter returns when the authority's certificate expires, and with it all others.
func (a *Authority) NotAfter() time.Time { return a.cert.NotAfter }

// signing are the key usages of an authority.
const signing = x509.KeyUsageCertSign | x509.KeyUsageCRLSign

func (a *Authority) check(dir string, now time.Time) error {
	path := filepath.Join(dir, certFile)
	switch {
	case !a.key.PublicKey.Equal(a.cert.PublicKey):
		return fault.New(
			fault.Invalid, "pki: %s does not belong to %s; restore both from one backup", path,
			filepath.Join(dir, keyFile),
		)
	case !a.cert.IsCA || a.cert.KeyUsage&signing != signing:
		return fault.New(
			fault.Invalid,
			"pki: %s is not the certificate of an authority that signs certificates and revocation lists", path,
		)
	case now.After(a.cert.NotAfter):
		return fault.New(fault.Invalid, "pki: %s expired at %s; move it away to have a new one made for the same key",
			path, a.cert.NotAfter.Format(time.RFC3339))
	}
	return nil
}

func loadOrCreateKey(dir string) (*ecdsa.PrivateKey, error) {
	path := filepath.Join(dir, keyFile)
	key, err := loadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if _, err := os.Stat(filepath.Join(dir, certFile)); err == nil {
		// Another process may have created both since the first check.
		if key, err = loadKey(path); !errors.Is(err, fs.ErrNotExist) {
			return key, err
		}
		return nil, fault.New(
			fault.Invalid,
			"pki: %s is missing though %s exists; restore the key, or move the certificate away to start a new authority",
			path, filepath.Join(dir, certFile),
		)
	}
	fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(fresh)
	if err != nil {
		return nil, err
	}
	if err := createOnce(path, []byte(encodePEM(typeKey, der)), 0o600); err != nil {
		return nil, err
	}
	// Read the key of the process that came first.
	return loadKey(path)
}

func loadKey(path string) (*ecdsa.PrivateKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, storage(err, "open %s", path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, storage(err, "stat %s", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fault.New(
			fault.Invalid, "pki: %s has mode %04o, so other users can reach the private key; run: chmod 600 %s",
			path, mode, path,
		)
	}
	der, err := readPEM(f, typeKey)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "pki: %s is not a PKCS #8 private key", path)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fault.New(fault.Invalid, "pki: %s is not an ECDSA P-256 key", path)
	}
	return key, nil
}

func loadOrCreateCert(dir, name string, key *ecdsa.PrivateKey, now time.Time) (*x509.Certificate, error) {
	path := filepath.Join(dir, certFile)
	cert, err := loadCert(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return cert, err
	}
	template := &x509.Certificate{
		SerialNumber:          newSerial(),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.AddDate(authorityYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // it signs certificates of sites, never of other authorities
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "pki: no certificate can be made for the name %q", name)
	}
	if err := createOnce(path, []byte(encodePEM(typeCert, der)), 0o644); err != nil {
		return nil, err
	}
	return loadCert(path)
}

func loadCert(path string) (*x509.Certificate, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, storage(err, "open %s", path)
	}
	defer f.Close()
	der, err := readPEM(f, typeCert)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "pki: %s is not a certificate", path)
	}
	return cert, nil
}

func readPEM(f *os.File, blockType string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes))
	if err != nil {
		return nil, storage(err, "read %s", f.Name())
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != blockType {
		return nil, fault.New(fault.Invalid, "pki: %s does not begin with a PEM block %q", f.Name(), blockType)
	}
	return block.Bytes, nil
}

func encodePEM(blockType string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: blockType, Bytes: der}))
}
