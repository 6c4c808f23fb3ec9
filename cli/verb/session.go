package verb

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

// API describes how commands reach a service.
type API[A any] struct {
	Service  *client.Service
	New      func(server string, options ...rest.Option) (A, error)
	BasePath string
	Default  string // URL of the server
	// ServerEnv and TokenEnv are the environment variables with the server's URL and the token, the
	// preferred ones first.
	ServerEnv, TokenEnv []string
	// OldServerFlag and OldTokenFileFlag are hidden flags that earlier versions had; empty: none.
	OldServerFlag, OldTokenFileFlag string
	// Token extracts the token from the value of an environment variable or file. Nil means that the
	// value is the token.
	Token func(string) string
	// DevLogin exchanges what dev mode left for a token, where the token itself is not left. credential
	// returns a secret by its name, or "".
	DevLogin func(ctx context.Context, api A, send Send, credential func(name string) (string, error)) (string, error)
	// Kinds are what arguments and flags name, by the placeholder in the Use of a command: "SITE".
	Kinds map[string]*Kind[A]
	// Header is sent with every request.
	Header http.Header
	// Adjust changes how the server is reached, as flags of the service say. Nil: nothing is changed.
	Adjust func(*Access) error
	// ExpectContinue is how long an upload waits for 100 Continue before it begins; 0: it does not.
	ExpectContinue time.Duration
}

// Session holds the flags that all commands of a noun have.
type Session[A any] struct {
	Env     client.Environment
	api     *API[A]
	noToken error // the error if no token is given explicitly; nil: other sources are used
	*flags
}

type flags struct {
	server, tokenFile named
	token, caFile     string
	timeout           time.Duration
	style             output.Style
}

// named is the value of a flag that has an earlier name, and the name that was given.
type named struct{ value, flag string }

// setter is one of the names of a flag.
type setter struct {
	to   *named
	flag string
}

func (s setter) String() string { return "" }
func (s setter) Type() string   { return "string" }

// Set stores the value and the name.
func (s setter) Set(value string) error {
	s.to.value, s.to.flag = value, "--"+s.flag
	return nil
}

// NewSession returns a Session. AddFlags gives it its flags.
func NewSession[A any](env client.Environment, api *API[A]) *Session[A] {
	return &Session[A]{Env: env, api: api, flags: &flags{}}
}

// AddFlags adds the flags to cmd and all commands below it.
func (s *Session[A]) AddFlags(cmd *cobra.Command) {
	api, f := s.api, cmd.PersistentFlags()
	f.Var(
		setter{&s.server, "server"}, "server",
		fmt.Sprintf("URL of the server (environment: %s) (default %s)", api.ServerEnv[0], api.Default),
	)
	f.StringVar(&s.token, "token", "", fmt.Sprintf("token to call with (environment: %s)", api.TokenEnv[0]))
	f.Var(setter{&s.tokenFile, "token-file"}, "token-file", "file with the token to call with")
	f.StringVar(&s.caFile, "ca-file", "", "PEM file with certificate authorities to trust besides the system's")
	f.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long a request that should be answered at once may take")
	s.style.AddFlags(cmd)
	for old, value := range map[string]*named{api.OldServerFlag: &s.server, api.OldTokenFileFlag: &s.tokenFile} {
		if old != "" {
			f.Var(setter{value, old}, old, "earlier name of this flag: see --server and --token-file")
			_ = f.MarkHidden(old) // this fails only for a flag that does not exist
		}
	}
	cmd.MarkFlagsMutuallyExclusive("token", "token-file")
}

// ExplicitOnly returns a Session with the same flags that uses only tokens that are given explicitly.
// Without one, its commands fail with err.
func (s *Session[A]) ExplicitOnly(err error) *Session[A] {
	other := *s
	other.noToken = err
	return &other
}

// Timeout returns the time limit of requests that should be answered at once.
func (s *Session[A]) Timeout() time.Duration { return s.timeout }

// Access is what is needed to reach the server.
type Access struct {
	Server    *url.URL
	Token     string
	Transport *http.Transport
	Header    http.Header // sent with every request
	root      *url.URL    // of the service that the flags name, where Adjust has not changed it
}

// Access returns the server and the credentials that the flags and the environment name.
func (s *Session[A]) Access() (*Access, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	source, raw := s.address(place)
	server, err := client.ServerURL(source, raw, s.api.Default, s.api.BasePath)
	if err != nil {
		return nil, err
	}
	token, err := s.bearer(server, place)
	if err != nil {
		return nil, err
	}
	transport, err := client.Transport(cmp.Or(s.caFile, place.CAFile))
	if err != nil {
		return nil, err
	}
	transport.ExpectContinueTimeout = s.api.ExpectContinue
	access := &Access{
		Server: server, Token: token, Transport: transport, Header: maps.Clone(s.api.Header), root: server,
	}
	if s.api.Adjust != nil {
		err = s.api.Adjust(access)
	}
	return access, err
}

// place returns how the current context reaches the service. What "mainstay dev" left in the working
// directory takes precedence.
func (s *Session[A]) place() (client.Place, error) {
	if _, fromEnv := s.firstOf(s.api.ServerEnv); s.server.value == "" && fromEnv == "" {
		usual, err := url.Parse(s.api.Default)
		if err != nil {
			return client.Place{}, err
		}
		if dev, err := s.api.Service.DevCredential(s.Env, usual); err != nil || dev != "" {
			return client.Place{}, err
		}
	}
	return s.Env.Place(s.api.Service.Unit)
}

// address returns the URL of the server, and what named it, for messages.
func (s *Session[A]) address(place client.Place) (source, raw string) {
	if s.server.value != "" {
		return s.server.flag, s.server.value
	}
	if name, value := s.firstOf(s.api.ServerEnv); value != "" {
		return name, value
	}
	if place.Server != "" {
		return "the server of the current context", place.Server
	}
	return "--server", s.api.Default
}

// firstOf returns the first environment variable that is set.
func (s *Session[A]) firstOf(variables []string) (name, value string) {
	for _, name := range variables {
		if value := s.Env.Getenv(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// maxTokenFile is the maximum size of the file of --token-file, in bytes.
const maxTokenFile = 64 << 10

func (s *Session[A]) bearer(server *url.URL, place client.Place) (string, error) {
	extract := s.api.Token
	if extract == nil {
		extract = strings.TrimSpace
	}
	if path := s.tokenFile.value; path != "" {
		text, err := ReadText(strings.TrimPrefix(s.tokenFile.flag, "--"), path, maxTokenFile)
		if err != nil {
			return "", err
		}
		token := extract(text)
		if token == "" {
			return "", exit.Usagef("%s: %s holds no token", s.tokenFile.flag, path)
		}
		return token, nil
	}
	_, fromEnv := s.firstOf(s.api.TokenEnv)
	if token := cmp.Or(strings.TrimSpace(s.token), extract(fromEnv)); token != "" {
		return token, nil
	}
	if s.noToken != nil {
		return "", s.noToken
	}
	if token := place.TokenFor(server); token != "" || s.api.DevLogin != nil {
		return token, nil
	}
	return s.api.Service.DevCredential(s.Env, server)
}

// SetHeaders sets the headers of every request.
func (a *Access) SetHeaders(h http.Header) {
	for name, values := range a.Header {
		h[name] = values
	}
	h.Set("User-Agent", "mainstay/"+telemetry.BuildInfo().Version)
	if a.Token != "" {
		h.Set("Authorization", "Bearer "+a.Token)
	}
}

// Client returns a client whose requests have a time limit; 0 means none.
func (s *Session[A]) Client(a *Access, timeout time.Duration) (A, error) {
	return s.api.New(a.Server.String()+s.api.BasePath, a.options(timeout)...)
}

func (a *Access) options(timeout time.Duration) []rest.Option {
	return []rest.Option{
		rest.WithHTTPClient(client.HTTP(a.Transport, timeout)),
		rest.WithEditor(func(_ context.Context, r *http.Request) error {
			a.SetHeaders(r.Header)
			return nil
		}),
	}
}
