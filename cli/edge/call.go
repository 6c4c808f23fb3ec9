package edge

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// call is one run of a command.
type call struct {
	*session
	cmd  *cobra.Command
	args []string
	api  *edgeapi.Client
	out  *output.Printer
}

// Service describes the edge control plane to package client.
var Service = client.Service{
	Unit: "edge", Credential: "admin_token",
	Name: "the edge control plane", Flag: "--server", Start: "'mainstay dev' or 'mainstay serve edge'",
	Hints: map[int]string{
		http.StatusUnauthorized: "give a token with --token or EDGE_TOKEN; 'mainstay edge login' makes one",
		http.StatusForbidden:    "'mainstay edge whoami' shows whose token this is",
	},
}

func (s *session) begin(cmd *cobra.Command, args []string) (*call, error) {
	api, err := s.client(s.timeout)
	if err != nil {
		return nil, err
	}
	return &call{session: s, cmd: cmd, args: args, api: api, out: output.NewPrinter(cmd.OutOrStdout(), s.format)}, nil
}

// send reads a response. It takes the results of a generated client's method.
func (c *call) send(r *http.Response, err error) (client.Answer, error) { return Service.Read(r, err) }

// decode decodes a response.
func decode[T any](a client.Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }
