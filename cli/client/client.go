package client

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/mainstay-infra/mainstay/cli/exit"
)

// Environment is the part of the process's environment that commands use.
type Environment struct {
	// Getenv returns an environment variable, or "" if it is not set.
	Getenv func(string) string
	// Dir is the directory in which .mainstay is looked up.
	Dir string
	// ConfigDir is the directory of the contexts. Empty means mainstay in the user's directory for
	// configuration.
	ConfigDir string
}

// ServerURL parses the URL of a server. source is what gave it, such as a flag, and usual an example,
// both for messages. It strips basePath, which people paste with the URL.
func ServerURL(source, raw, usual, basePath string) (*url.URL, error) {
	raw = strings.TrimSuffix(strings.TrimRight(strings.TrimSpace(raw), "/"), basePath)
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, exit.Usagef("%s must be a URL such as %s, not %q", source, usual, raw)
	}
	return u, nil
}

// Transport returns a transport that trusts the system's authorities and those in caFile, the value
// of the flag --ca-file, unless it is empty.
func Transport(caFile string) (*http.Transport, error) {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if caFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca-file: no certificate in %s", caFile)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// DevCredential returns a secret of a service that dev mode stored in .mainstay/credentials.json.
// It returns "" if the server is not on this machine or there is no such file.
func (env Environment) DevCredential(server *url.URL, unit, name string) (string, error) {
	if !isLoopback(server.Hostname()) {
		return "", nil
	}
	path := filepath.Join(env.Dir, ".mainstay", "credentials.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read credentials: %w", err)
	}
	var units map[string]map[string]string
	if err := json.Unmarshal(raw, &units); err != nil {
		return "", fmt.Errorf("read credentials: %s: %w", path, err)
	}
	return units[unit][name], nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
