package httpserve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// tlsFiles holds the TLS configuration built from files. It rebuilds it when one of them has
// changed, so that a renewed certificate needs no restart.
type tlsFiles struct {
	cfg   Config
	fixed *tls.Certificate // set for self-signed
	log   *slog.Logger

	mu      sync.Mutex
	tried   [3]fileState // the files at the last attempt, successful or not
	current *tls.Config
}

// fileState identifies a version of a file without reading it.
type fileState struct {
	modified time.Time
	size     int64
}

// newTLSFiles reads the files once, so that an error prevents the start, and returns a
// configuration that follows later changes.
func newTLSFiles(cfg Config, fixed *tls.Certificate, log *slog.Logger) (*tls.Config, error) {
	f := &tlsFiles{cfg: cfg, fixed: fixed, log: log}
	f.tried = f.state()
	var err error
	if f.current, err = f.load(); err != nil {
		return nil, err
	}
	outer := f.current.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.get(), nil }
	return outer, nil
}

// get is called for every handshake: at most three stat calls, little compared to the handshake's
// cryptography. While the files are inconsistent (for example, the certificate is replaced but its
// key is not yet), the last good configuration stays in use.
func (f *tlsFiles) get() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.state()
	if state == f.tried {
		return f.current
	}
	f.tried = state
	next, err := f.load()
	if err != nil {
		f.log.Error("changed TLS files cannot be used; the previous ones stay in use", "err", err)
		return f.current
	}
	f.log.Info("TLS files reloaded")
	f.current = next
	return next
}

func (f *tlsFiles) state() (s [3]fileState) {
	for i, name := range []string{f.cfg.TLSCert, f.cfg.TLSKey, f.cfg.ClientCA} {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil {
			s[i] = fileState{info.ModTime(), info.Size()}
		}
	}
	return s
}

func (f *tlsFiles) load() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if f.fixed != nil {
		c.Certificates = []tls.Certificate{*f.fixed}
	} else {
		cert, err := tls.LoadX509KeyPair(f.cfg.TLSCert, f.cfg.TLSKey)
		if err != nil {
			e := fault.Wrap(fault.Invalid, err, "tls-cert: cannot use %s with the key %s", f.cfg.TLSCert, f.cfg.TLSKey)
			e.Field = "tls-cert"
			return nil, e
		}
		c.Certificates = []tls.Certificate{cert}
	}
	if f.cfg.ClientCA != "" {
		pem, err := os.ReadFile(f.cfg.ClientCA)
		if err != nil {
			e := fault.Wrap(fault.Invalid, err, "client-ca: cannot read %s", f.cfg.ClientCA)
			e.Field = "client-ca"
			return nil, e
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fault.InvalidField("client-ca", "%s holds no PEM certificate", f.cfg.ClientCA)
		}
		c.ClientAuth = tls.VerifyClientCertIfGiven
		if f.cfg.ClientRequired {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
	}
	return c, nil
}

// selfSigned creates a certificate for this machine's own names. It exists only as long as the
// process: its key is never stored.
func selfSigned(host string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("httpserve: self-signed key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "mainstay development"},
		NotBefore:             now.Add(-time.Hour), // allows for clock differences
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if name, err := os.Hostname(); err == nil {
		template.DNSNames = append(template.DNSNames, name)
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else if host != "" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("httpserve: self-signed certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
