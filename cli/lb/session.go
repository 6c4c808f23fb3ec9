package lb

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

const (
	defaultServer = "http://127.0.0.1:9870"
	keysHelp      = `
The key is the one in the file of --api-key-file, else the first of LB_API_KEY, else, when the server runs on this
machine, the one in .mainstay/credentials.json below the working directory, where "mainstay dev" leaves it.`
)

// session holds the flags that all commands have.
type session struct {
	env                     client.Environment
	server, keyFile, caFile string
	timeout                 time.Duration
	format                  output.Format
}

func (s *session) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(
		&s.server, "server", "", "URL of the load balancer (environment: LB_SERVER) (default "+defaultServer+")",
	)
	f.StringVar(
		&s.keyFile, "api-key-file", "", "file with the key to call with (environment: LB_API_KEY, the key itself)",
	)
	f.StringVar(&s.caFile, "ca-file", "", "PEM file with certificate authorities to trust besides the system's")
	f.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long one request may take")
	s.format.AddFlag(cmd)
}

func (s *session) client() (*lbapi.Client, error) {
	server, err := client.ServerURL(s.server, s.env.Getenv("LB_SERVER"), defaultServer, lbapi.BasePath)
	if err != nil {
		return nil, err
	}
	key, err := s.key(server)
	if err != nil {
		return nil, err
	}
	transport, err := client.Transport(s.caFile)
	if err != nil {
		return nil, err
	}
	return lbapi.NewClient(server.String()+lbapi.BasePath,
		rest.WithHTTPClient(&http.Client{Transport: transport, Timeout: s.timeout}),
		rest.WithEditor(func(_ context.Context, r *http.Request) error {
			r.Header.Set("User-Agent", "mainstay/"+telemetry.BuildInfo().Version)
			r.Header.Set("Content-Type", "application/json") // changes require it, even without a body
			if key != "" {
				r.Header.Set("Authorization", "Bearer "+key)
			}
			return nil
		}))
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
	return Service.DevCredential(s.env, server)
}

// plainKey returns the first key of a value of the server's setting: KEY or id:NAME=KEY, several
// separated by commas.
func plainKey(setting string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(setting), ",")
	if named, ok := strings.CutPrefix(first, "id:"); ok {
		_, first, _ = strings.Cut(named, "=")
	}
	return strings.TrimSpace(first)
}
