package edge

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
)

const defaultServer = "http://127.0.0.1:8080"

// New returns the command `edge` with all commands below it.
func New(env client.Environment) *cobra.Command {
	s := &session{settings: &settings{env: env}}
	cmd := group("edge", "Work with the edge control plane: sites, events, devices, updates",
		"  mainstay edge overview\n  mainstay edge site list --status offline -o json")
	cmd.Long = `Work with the edge control plane: sites at the edge, the events they send, the devices they look after.

The token comes from --token or EDGE_TOKEN. If neither is given and the server runs on this machine, it is the admin
token that "mainstay dev" leaves in .mainstay/credentials.json below the working directory.`
	f := cmd.PersistentFlags()
	f.StringVar(&s.server, "server", "", "URL of the server (environment: EDGE_SERVER) (default "+defaultServer+")")
	f.StringVar(&s.token, "token", "", "token to call with (environment: EDGE_TOKEN)")
	f.StringVar(&s.caFile, "ca-file", "", "PEM file with certificate authorities to trust besides the system's")
	f.DurationVar(&s.timeout, "timeout", 30*time.Second, "how long one request may take")
	s.format.AddFlag(cmd)
	cmd.AddCommand(
		s.login(), s.logout(), s.whoami(), s.version(), s.overview(),
		s.sites(), s.enrollmentTokens(), s.events(), s.routes(), s.deadLetters(),
		s.devices(), s.twins(), s.ota(), s.campaigns(),
		s.deployments(), s.policies(), s.orgs(), s.simulate(),
		s.alerts(), s.activity(), s.audit(), s.crl(), s.agent(),
	)
	return cmd
}
