package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// agentSession sends the requests of a site's agent.
type agentSession struct {
	*session
	site string
}

func (s *session) agent() *cobra.Command {
	a := &agentSession{session: &session{s.ExplicitOnly(errNoAgentToken)}}
	cmd := verb.Group(
		"agent", "The calls that a site's agent makes, for trying things out",
		"  export EDGE_TOKEN=...   # the agent_token that 'mainstay edge site enroll' printed\n  mainstay edge agent heartbeat",
	)
	cmd.Long = `The calls that a site's agent makes, for trying things out. They take the agent's token: --token or EDGE_TOKEN.`
	cmd.PersistentFlags().StringVar(&a.site, "site", "", "the agent's site; asked of the server when absent")
	cmd.AddCommand(
		a.heartbeat(), a.register(), a.rotate(),
		a.agentDeployments(), a.agentPolicies(), a.reportDeployment(), a.rollback(),
		a.agentTwins(), a.report(), a.reportOTA(),
	)
	a.Complete(cmd)
	return cmd
}

// siteID returns the calling site's id, which some requests must contain.
func (a *agentSession) siteID(ctx context.Context, c *call) (string, error) {
	if a.site != "" {
		return a.site, nil
	}
	me, err := decode[edgeapi.Caller](c.Send(c.API.GetMe(ctx)))
	if err == nil && me.SiteId == "" {
		err = exit.Usagef("this is not an agent's token")
	}
	return me.SiteId, err
}

func (a *agentSession) heartbeat() *cobra.Command {
	var version string
	var labels verb.Pairs
	cmd := a.Object(verb.Verb{
		Use: "heartbeat", Short: "Say that the site lives",
		Example: "  mainstay edge agent heartbeat --token TOKEN --agent-version 1.4.0",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.Heartbeat(ctx, edgeapi.HeartbeatInput{
			Version: verb.Given(c, "agent-version", version),
			Labels:  verb.Given(c, "label", edgeapi.Labels(labels)),
		})
	})
	cmd.Flags().StringVar(&version, "agent-version", "", "version of the agent")
	cmd.Flags().Var(&labels, "label", "label of the site; may be repeated")
	return cmd
}

func (a *agentSession) register() *cobra.Command {
	var name, model, firmware string
	var labels verb.Pairs
	cmd := a.Object(verb.Verb{
		Use: "register DEVICE", Short: "Make a device known, or refresh what is known of it",
		Example: "  mainstay edge agent register pump-1 --model P100 --firmware 1.0.0 --label line=a",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.RegisterDevice(ctx, edgeapi.DeviceInput{
			DeviceId:        c.Args[0],
			SiteId:          verb.Given(c, "site", a.site),
			Name:            verb.Given(c, "name", name),
			Model:           verb.Given(c, "model", model),
			FirmwareVersion: verb.Given(c, "firmware", firmware),
			Labels:          verb.Given(c, "label", edgeapi.Labels(labels)),
		})
	})
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "name of the device")
	f.StringVar(&model, "model", "", "model of the device")
	f.StringVar(&firmware, "firmware", "", "version of its firmware")
	f.Var(&labels, "label", "label of the device; may be repeated")
	return cmd
}

func (a *agentSession) agentTwins() *cobra.Command {
	return verb.List(
		a.session.Session,
		verb.Verb{
			Use:     "twins",
			Short:   "List the desired state of the site's devices",
			Example: "  mainstay edge agent twins -o json",
		},
		twinColumns(),
		func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListAgentTwins(
				ctx, &edgeapi.ListAgentTwinsParams{Limit: p.Limit, Cursor: p.Cursor, SiteId: verb.Given(c, "site", a.site)},
			)
		},
	)
}

func (a *agentSession) agentPolicies() *cobra.Command {
	return verb.List(
		a.session.Session,
		verb.Verb{
			Use:     "policies",
			Short:   "List the policy packs that bind the site",
			Example: "  mainstay edge agent policies",
		},
		policyColumns(),
		func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListAgentPolicyPacks(
				ctx,
				&edgeapi.ListAgentPolicyPacksParams{Limit: p.Limit, Cursor: p.Cursor, SiteId: verb.Given(c, "site", a.site)},
			)
		},
	)
}

func (a *agentSession) agentDeployments() *cobra.Command {
	return verb.List(
		a.session.Session,
		verb.Verb{Use: "deployments", Short: "List what the site should run", Example: "  mainstay edge agent deployments"},
		output.Columns[edgeapi.AgentDeployment]{
			Heads: []string{"ID", "NAME", "IMAGE", "VERSION", "DESIRED", "STATUS", "REVISION", "ALLOWED"},
			Row: func(v edgeapi.AgentDeployment) []any {
				return []any{v.Id, v.Name, v.Image, v.Version, v.DesiredState, v.Status, v.Revision, v.Allowed}
			},
		},
		func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
			return c.API.ListAgentDeployments(
				ctx,
				&edgeapi.ListAgentDeploymentsParams{Limit: p.Limit, Cursor: p.Cursor, SiteId: verb.Given(c, "site", a.site)},
			)
		},
	)
}
