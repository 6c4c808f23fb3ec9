package edge

import (
	"net/http"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// Service describes the edge control plane to package client.
var Service = client.Service{
	Unit: "edge", Credential: "admin_token",
	Name: "the edge control plane", Kind: "an edge control plane", Title: "Mainstay edge control plane",
	Flag: "--server", Start: "'mainstay dev' or 'mainstay serve edge'",
	Hints: map[int]string{
		http.StatusUnauthorized: "give a token with --token or EDGE_TOKEN; or log in with 'mainstay login edge'",
		http.StatusForbidden:    "'mainstay edge whoami' shows whose token this is",
	},
}

var api = verb.API[*edgeapi.Client]{
	Service: &Service, New: edgeapi.NewClient, BasePath: edgeapi.BasePath, Default: "http://127.0.0.1:8080",
	ServerEnv: []string{"EDGE_SERVER"}, TokenEnv: []string{"EDGE_TOKEN"}, Kinds: kinds,
}

// errNoAgentToken is the error for an agent's command without a token. The admin's would be useless.
var errNoAgentToken = exit.Hinted(exit.Usagef("an agent's call takes the agent's token: --token or EDGE_TOKEN"),
	"'mainstay edge site enroll NAME' makes a site and prints its agent's token")

type (
	// session builds the commands.
	session struct{ *verb.Session[*edgeapi.Client] }
	call    = verb.Call[*edgeapi.Client]
	request = verb.Request[*edgeapi.Client]
)

// decode decodes a response.
func decode[T any](a client.Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }
