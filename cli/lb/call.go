package lb

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// call is one run of a command.
type call struct {
	cmd  *cobra.Command
	args []string
	api  *lbapi.Client
	out  *output.Printer
}

// Service describes the load balancer to package client.
var Service = client.Service{
	Unit: "lb", Credential: "api_key",
	Name: "the load balancer", Flag: "--server", Start: "'mainstay serve lb'",
	Hints: map[int]string{
		http.StatusNotFound:           "'mainstay lb backends' shows what there is",
		http.StatusUnauthorized:       "set LB_API_KEY, or name a file with the key: --api-key-file",
		http.StatusForbidden:          "the key is a read-only one; changes need an admin key",
		http.StatusServiceUnavailable: "'mainstay lb node' says what is wrong",
	},
}

// read reads a response. It takes the results of a generated client's method.
func read(r *http.Response, err error) (client.Answer, error) { return Service.Read(r, err) }

// decode decodes a response.
func decode[T any](a client.Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }
