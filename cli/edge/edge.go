package edge

import (
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// New returns the command `edge` with all commands below it.
func New(env client.Environment) *cobra.Command {
	cmd := verb.Group("edge", "Work with the edge control plane: sites, events, devices, updates",
		"  mainstay edge overview\n  mainstay edge site list --status offline -o json")
	cmd.Long = `Work with the edge control plane: sites at the edge, the events they send, the devices they look after.

The token comes from --token or EDGE_TOKEN. If neither is given and the server runs on this machine, it is the admin
token that "mainstay dev" leaves in .mainstay/credentials.json below the working directory.`
	s := &session{verb.NewSession(env, &api)}
	s.AddFlags(cmd)
	cmd.AddCommand(
		s.login(), s.logout(), s.whoami(), s.version(), s.overview(),
		s.sites(), s.enrollmentTokens(), s.events(), s.routes(), s.deadLetters(),
		s.devices(), s.twins(), s.ota(), s.campaigns(),
		s.deployments(), s.policies(), s.orgs(), s.simulate(),
		s.alerts(), s.activity(), s.audit(), s.crl(), s.agent(),
	)
	s.Complete(cmd)
	return cmd
}
