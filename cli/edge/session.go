package edge

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// Environment is what the commands take from the process around them.
type Environment struct {
	// Getenv reads an environment variable; empty when it is not set.
	Getenv func(string) string
	// Dir is the folder in which .mainstay is looked for.
	Dir string
}

// settings are the flags of `mainstay edge`.
type settings struct {
	env                   Environment
	server, token, caFile string
	timeout               time.Duration
	format                output.Format
}

// session is what the commands share. An agent's session takes no credentials
// but those named, since the admin's would be of no use.
type session struct {
	*settings
	agentOnly bool
}

// client makes a client of the server. A timeout of 0 is none, for streams.
func (s *session) client(timeout time.Duration) (*edgeapi.Client, error) {
	server, err := s.serverURL()
	if err != nil {
		return nil, err
	}
	token, err := s.bearer(server)
	if err != nil {
		return nil, err
	}
	transport, err := s.transport()
	if err != nil {
		return nil, err
	}
	return edgeapi.NewClient(server.String()+edgeapi.BasePath,
		edgeapi.WithHTTPClient(&http.Client{Transport: transport, Timeout: timeout}),
		edgeapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("User-Agent", "mainstay/"+telemetry.BuildInfo().Version)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			return nil
		}))
}

func (s *session) serverURL() (*url.URL, error) {
	raw := cmp.Or(s.server, s.env.Getenv("EDGE_SERVER"), defaultServer)
	// People paste what a browser or the API's documentation shows.
	raw = strings.TrimSuffix(strings.TrimRight(raw, "/"), edgeapi.BasePath)
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, exit.Usagef("--server must be a URL such as %s, not %q", defaultServer, raw)
	}
	return u, nil
}

func (s *session) bearer(server *url.URL) (string, error) {
	token := cmp.Or(s.token, s.env.Getenv("EDGE_TOKEN"))
	if token != "" {
		return token, nil
	}
	if s.agentOnly {
		return "", exit.Hinted(exit.Usagef("an agent's call takes the agent's token: --token or EDGE_TOKEN"),
			"'mainstay edge site enroll NAME' makes a site and prints its agent's token")
	}
	c, err := s.credentials(server)
	return c.AdminToken, err
}

func (s *session) transport() (*http.Transport, error) {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if s.caFile == "" {
		return t, nil
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
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}
