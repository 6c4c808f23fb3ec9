package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

const (
	defaultData = "/var/lib/mainstay-agent"
	timeout     = 10 * time.Second
)

// place locates the agent's socket.
type place struct{ data, socket string }

func (at *place) addFlags(cmd *cobra.Command) {
	cmd.Flags().
		StringVar(&at.data, "data", "", "the agent's data folder (environment: AGENT_DATA) (default "+defaultData+")")
	cmd.Flags().StringVar(&at.socket, "socket", "", "the agent's socket, if it is elsewhere")
}

func (at *place) path(getenv func(string) string) string {
	if at.socket != "" {
		return at.socket
	}
	return filepath.Join(cmp.Or(at.data, getenv("AGENT_DATA"), defaultData), agentapi.Socket)
}

// ask sends one request through the socket.
func (at *place) ask(
	getenv func(string) string,
	request func(*agentapi.Client) (*http.Response, error),
) (client.Answer, error) {
	socket := at.path(getenv)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	api, err := agentapi.NewClient(
		"http://localhost"+agentapi.BasePath,
		rest.WithHTTPClient(&http.Client{Transport: transport, Timeout: timeout}),
	)
	if err != nil {
		return client.Answer{}, err
	}
	res, err := request(api)
	if err != nil {
		return client.Answer{}, unreachable(socket, err)
	}
	return Service.Read(res, nil)
}

// Service describes the agent to package client.
var Service = client.Service{Unit: "agent", Name: "the agent's", Flag: "--socket"}

func decode[T any](a client.Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }

func unreachable(socket string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return exit.Hinted(
			fmt.Errorf("no agent answers at %s", socket),
			"is it running? --data names its data folder; 'mainstay agent doctor' looks for what keeps it from working",
		)
	case errors.Is(err, syscall.EACCES):
		return &exit.Error{
			Code: exit.Denied,
			Err:  fmt.Errorf("no right to open %s", socket),
			Hint: "be root, or in the group that owns the socket",
		}
	}
	return fmt.Errorf("no answer from %s: %w", socket, err)
}
