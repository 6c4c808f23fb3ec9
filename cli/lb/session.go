package lb

import (
	"cmp"
	"context"
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
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

const (
	defaultServer = "http://127.0.0.1:9870"
	keysHelp      = `
The key is the one in the file of --api-key-file, else the first of LB_API_KEY, else, when the server runs on this
machine, the one in .mainstay/credentials.json below the working directory, where "mainstay dev" leaves it.`
)

// Environment is what the commands take from the process around them.
type Environment struct {
	// Getenv reads an environment variable; empty when it is not set.
	Getenv func(string) string
	// Dir is the folder in which .mainstay is looked for.
	Dir string
}

// session is the flags that all commands have.
type session struct {
	env                     Environment
	server, keyFile, caFile string
	timeout                 time.Duration
	format                  output.Format
}

func (s *session) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.server, "server", "", "URL of the load balancer (environment: LB_SERVER) (default "+defaultServer+")")
	f.StringVar(&s.keyFile, "api-key-file", "", "file with the key to call with (environment: LB_API_KEY, the key itself)")
	f.StringVar(&s.caFile, "ca-file", "", "PEM file with certificate authorities to trust besides the system's")
	f.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long one request may take")
	s.format.AddFlag(cmd)
}

func (s *session) client() (*lbapi.Client, error) {
	server, err := s.serverURL()
	if err != nil {
		return nil, err
	}
	key, err := s.key(server)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if transport.TLSClientConfig, err = s.trust(); err != nil {
		return nil, err
	}
	return lbapi.NewClient(server.String()+lbapi.BasePath,
		lbapi.WithHTTPClient(&http.Client{Transport: transport, Timeout: s.timeout}),
		lbapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("User-Agent", "mainstay/"+telemetry.BuildInfo().Version)
			r.Header.Set("Content-Type", "application/json") // changes ask for it, even without a body
			if key != "" {
				r.Header.Set("Authorization", "Bearer "+key)
			}
			return nil
		}))
}

func (s *session) serverURL() (*url.URL, error) {
	raw := cmp.Or(s.server, s.env.Getenv("LB_SERVER"), defaultServer)
	u, err := url.Parse(strings.TrimSuffix(strings.TrimRight(raw, "/"), lbapi.BasePath))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, exit.Usagef("--server must be a URL such as %s, not %q", defaultServer, raw)
	}
	return u, nil
}

func (s *session) key(server *url.URL) (string, error) {
	if s.keyFile != "" {
		raw, err := os.ReadFile(s.keyFile)
		if err != nil {
			return "", fmt.Errorf("--api-key-file: %w", err)
		}
		return plainKey(string(raw)), nil
	}
	if key := plainKey(s.env.Getenv("LB_API_KEY")); key != "" {
		return key, nil
	}
	if !isLoopback(server.Hostname()) {
		return "", nil // the key of dev mode goes nowhere else
	}
	path := filepath.Join(s.env.Dir, ".mainstay", "credentials.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read credentials: %w", err)
	}
	var file struct {
		LB struct {
			APIKey string `json:"api_key"`
		} `json:"lb"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return "", fmt.Errorf("read credentials: %s: %w", path, err)
	}
	return file.LB.APIKey, nil
}

// plainKey is the first key of what the server's setting may hold: KEY or
// id:NAME=KEY, several separated by commas.
func plainKey(setting string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(setting), ",")
	if named, ok := strings.CutPrefix(first, "id:"); ok {
		_, first, _ = strings.Cut(named, "=")
	}
	return strings.TrimSpace(first)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (s *session) trust() (*tls.Config, error) {
	if s.caFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(s.caFile)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca-file: no certificate in %s", s.caFile)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
