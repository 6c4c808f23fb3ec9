package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

const (
	defaultURL = "http://127.0.0.1:7070"
	// largestMessage is the largest message accepted on a socket, in bytes. The first message of a
	// console holds the earlier output.
	largestMessage = 1 << 20
	// patienceWithBody is how long an upload waits for 100 Continue before it begins.
	patienceWithBody = 5 * time.Second
)

// TokenHelp explains where the token comes from.
const TokenHelp = `The token comes from --token or HYPERVISOR_TOKEN. If neither is given and the daemon runs on this machine, it is the
one that "mainstay dev" leaves in .mainstay/credentials.json below the working directory.`

// Session holds the flags that all commands of a group have.
type Session struct {
	env                client.Environment
	url, token, caFile string
	timeout            time.Duration
	format             output.Format
}

// NewSession returns a Session and adds its flags to cmd and all commands below it.
func NewSession(env client.Environment, cmd *cobra.Command) *Session {
	s := &Session{env: env}
	f := cmd.PersistentFlags()
	f.StringVar(&s.url, "url", "", "URL of the daemon (environment: HYPERVISOR_URL) (default "+defaultURL+")")
	f.StringVar(&s.token, "token", "", "token to call with (environment: HYPERVISOR_TOKEN)")
	f.StringVar(&s.caFile, "ca-file", "", "PEM file with certificate authorities to trust besides the system's")
	f.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long a request that should be answered at once may take")
	s.format.AddFlag(cmd)
	return s
}

// access holds what is needed to reach the daemon.
type access struct {
	server    *url.URL
	token     string
	transport *http.Transport
}

func (s *Session) access() (*access, error) {
	server, err := client.ServerURL(s.url, s.env.Getenv("HYPERVISOR_URL"), defaultURL, hypervisorapi.BasePath)
	if err != nil {
		return nil, exit.Usagef(
			"--url must be a URL such as %s, not %q", defaultURL, cmp.Or(s.url, s.env.Getenv("HYPERVISOR_URL")),
		)
	}
	token := strings.TrimSpace(cmp.Or(s.token, s.env.Getenv("HYPERVISOR_TOKEN")))
	if token == "" {
		if token, err = Service.DevCredential(s.env, server); err != nil {
			return nil, err
		}
	}
	transport, err := client.Transport(s.caFile)
	if err != nil {
		return nil, err
	}
	transport.ExpectContinueTimeout = patienceWithBody
	return &access{server, token, transport}, nil
}

// headers sets the headers of every request.
func (a *access) headers(h http.Header) {
	h.Set("User-Agent", "mainstay/"+telemetry.BuildInfo().Version)
	if a.token != "" {
		h.Set("Authorization", "Bearer "+a.token)
	}
}

// client returns a client whose requests have this time limit; 0 means none.
func (a *access) client(timeout time.Duration) (*hypervisorapi.Client, error) {
	return hypervisorapi.NewClient(a.server.String()+hypervisorapi.BasePath,
		rest.WithHTTPClient(&http.Client{Transport: a.transport, Timeout: timeout}),
		rest.WithEditor(func(_ context.Context, r *http.Request) error {
			a.headers(r.Header)
			return nil
		}))
}

// socket opens a WebSocket at a path of the API.
func (a *access) socket(
	ctx context.Context, path string, timeout time.Duration,
) (*websocket.Conn, *http.Response, error) {
	transport := a.transport.Clone()
	// A WebSocket requires HTTP/1.1.
	transport.ForceAttemptHTTP2 = false
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	if transport.TLSClientConfig != nil {
		transport.TLSClientConfig.NextProtos = nil
	}
	header := http.Header{}
	a.headers(header)
	ctx, cancel := context.WithTimeout(ctx, timeout) // limits only the handshake
	defer cancel()
	conn, answer, err := websocket.Dial(
		ctx,
		a.server.JoinPath(hypervisorapi.BasePath, path).String(),
		&websocket.DialOptions{
			HTTPClient: &http.Client{
				Transport: transport,
			},
			HTTPHeader:      header,
			CompressionMode: websocket.CompressionDisabled,
		},
	)
	if err != nil {
		return nil, answer, err
	}
	conn.SetReadLimit(largestMessage)
	return conn, answer, nil
}
