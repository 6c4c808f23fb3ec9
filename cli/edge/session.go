package edge

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// settings holds the flags of `mainstay edge`.
type settings struct {
	env                   client.Environment
	server, token, caFile string
	timeout               time.Duration
	format                output.Format
}

// session is shared by the commands. An agent's session uses only credentials that are given
// explicitly, since the admin's would be useless.
type session struct {
	*settings
	agentOnly bool
}

// client returns a client of the server. A timeout of 0 means none, for streams.
func (s *session) client(timeout time.Duration) (*edgeapi.Client, error) {
	server, err := s.serverURL()
	if err != nil {
		return nil, err
	}
	token, err := s.bearer(server)
	if err != nil {
		return nil, err
	}
	transport, err := client.Transport(s.caFile)
	if err != nil {
		return nil, err
	}
	return edgeapi.NewClient(server.String()+edgeapi.BasePath,
		rest.WithHTTPClient(&http.Client{Transport: transport, Timeout: timeout}),
		rest.WithEditor(func(_ context.Context, r *http.Request) error {
			r.Header.Set("User-Agent", "mainstay/"+telemetry.BuildInfo().Version)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			return nil
		}))
}

func (s *session) serverURL() (*url.URL, error) {
	return client.ServerURL(s.server, s.env.Getenv("EDGE_SERVER"), defaultServer, edgeapi.BasePath)
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
	return Service.DevCredential(s.env, server)
}
