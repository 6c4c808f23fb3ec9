package daemon

import (
	"net/http"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// patienceWithBody is how long an upload waits for 100 Continue before it begins.
const patienceWithBody = 5 * time.Second

// TokenHelp explains where the token comes from.
const TokenHelp = `The token comes from --token, --token-file or HYPERVISOR_TOKEN. If none is given and the daemon runs on this machine,
it is the one that "mainstay dev" leaves in .mainstay/credentials.json below the working directory.`

// Service describes the hypervisor daemon to package client.
var Service = client.Service{
	Unit: "hypervisor", Credential: "token",
	Name: "the hypervisor daemon", Kind: "a hypervisor daemon", Title: "Mainstay hypervisor",
	Flag: "--server", Start: "'mainstay dev' or 'mainstay serve hypervisor'",
	Hints: map[int]string{
		http.StatusUnauthorized:        "give a token with --token or HYPERVISOR_TOKEN; or log in with 'mainstay login hypervisor'",
		http.StatusForbidden:           "'mainstay vm whoami' shows whose token this is",
		http.StatusInsufficientStorage: "'mainstay image clean' removes from disk what nothing needs any more",
		http.StatusGatewayTimeout:      "'mainstay vm ping VM' asks the agent in the guest for an answer",
	},
	CodeHints: map[string]string{
		"agent_not_connected": "'mainstay vm wait VM --for agent' waits until it is connected; 'mainstay vm console VM' shows what the guest does",
	},
}

var api = verb.API[*hypervisorapi.Client]{
	Service: &Service, New: hypervisorapi.NewClient, BasePath: hypervisorapi.BasePath, Default: "http://127.0.0.1:7070",
	ServerEnv: []string{"HYPERVISOR_SERVER", "HYPERVISOR_URL"}, TokenEnv: []string{"HYPERVISOR_TOKEN"},
	OldServerFlag: "url", Kinds: kinds, ExpectContinue: patienceWithBody,
}

type (
	// Session holds the flags of the commands.
	Session = verb.Session[*hypervisorapi.Client]
	// Call is one run of a command.
	Call = verb.Call[*hypervisorapi.Client]
	// Request sends the request of a command.
	Request = verb.Request[*hypervisorapi.Client]
	// Answer is a successful response.
	Answer = client.Answer
)

// NewSession returns a Session and adds its flags to cmd and all commands below it.
func NewSession(env client.Environment, cmd *cobra.Command) *Session {
	return newSession(env, cmd, new(string))
}

// NewHostSession is NewSession with the flag --node, for commands about what one host has.
func NewHostSession(env client.Environment, cmd *cobra.Command) *Session {
	node := new(string)
	s := newSession(env, cmd, node)
	cmd.PersistentFlags().StringVar(node, "node", "", "reach this host of the fleet; --server is the fleet's registry")
	return s
}

// nodeName matches names of hosts, which become a part of a path.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func newSession(env client.Environment, cmd *cobra.Command, node *string) *Session {
	var tenant, actor string
	own := api
	own.Adjust = func(a *verb.Access) error {
		a.Header = http.Header{}
		for name, value := range map[string]string{"Mainstay-Tenant": tenant, "Mainstay-Actor": actor} {
			if value != "" {
				a.Header.Set(name, value)
			}
		}
		if *node == "" {
			return nil
		}
		if !nodeName.MatchString(*node) {
			return exit.Usagef("--node: %q is not a valid name of a host", *node)
		}
		a.Server = a.Server.JoinPath("fleet", "nodes", *node)
		return nil
	}
	s := verb.NewSession(env, &own)
	s.AddFlags(cmd)
	f := cmd.PersistentFlags()
	f.StringVar(&tenant, "as-tenant", "", "act as one of this tenant's; takes an admin's token")
	f.StringVar(&actor, "as-actor", "", "name of the person to record beside the token's; takes an admin's token")
	return s
}

// At returns c for the daemon of a host of the fleet whose registry c reaches.
func At(c *Call, node string) (*Call, error) {
	if !nodeName.MatchString(node) {
		return nil, exit.Usagef("%q is not a valid name of a host", node)
	}
	reach := *c.Reach
	reach.Server = reach.Server.JoinPath("fleet", "nodes", node)
	there := *c
	there.Reach = &reach
	var err error
	there.Slow, err = c.Client(&reach, 0)
	there.API = there.Slow
	return &there, err
}

// Decode decodes a response.
func Decode[T any](a Answer, err error) (T, error) { return client.Decode[T](&Service, a, err) }
