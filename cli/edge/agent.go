package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// agentSession sends the requests of a site's agent.
type agentSession struct {
	*session
	site string
}

func (s *session) agent() *cobra.Command {
	a := &agentSession{session: &session{settings: s.settings, agentOnly: true}}
	cmd := group(
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
	return cmd
}

// siteID returns the calling site's id, which some requests must contain.
func (a *agentSession) siteID(ctx context.Context, c *call) (string, error) {
	if a.site != "" {
		return a.site, nil
	}
	me, err := decode[edgeapi.Caller](c.send(c.api.GetMe(ctx)))
	if err == nil && me.SiteId == "" {
		err = exit.Usagef("this is not an agent's token")
	}
	return me.SiteId, err
}

func (a *agentSession) heartbeat() *cobra.Command {
	var version string
	var labels pairs
	cmd := a.object(verb{
		use: "heartbeat", short: "Say that the site lives",
		example: "  mainstay edge agent heartbeat --token TOKEN --agent-version 1.4.0",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.Heartbeat(ctx, edgeapi.HeartbeatInput{
			Version: given(c, "agent-version", version),
			Labels:  given(c, "label", edgeapi.Labels(labels)),
		})
	})
	cmd.Flags().StringVar(&version, "agent-version", "", "version of the agent")
	cmd.Flags().Var(&labels, "label", "label of the site; may be repeated")
	return cmd
}

func (a *agentSession) register() *cobra.Command {
	var name, model, firmware string
	var labels pairs
	cmd := a.object(verb{
		use: "register DEVICE", short: "Make a device known, or refresh what is known of it",
		example: "  mainstay edge agent register pump-1 --model P100 --firmware 1.0.0 --label line=a",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		return c.api.RegisterDevice(ctx, edgeapi.DeviceInput{
			DeviceId:        c.args[0],
			SiteId:          given(c, "site", a.site),
			Name:            given(c, "name", name),
			Model:           given(c, "model", model),
			FirmwareVersion: given(c, "firmware", firmware),
			Labels:          given(c, "label", edgeapi.Labels(labels)),
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
	return list(
		a.session,
		verb{
			use:     "twins",
			short:   "List the desired state of the site's devices",
			example: "  mainstay edge agent twins -o json",
		},
		twinColumns(),
		func(ctx context.Context, c *call, p page) (*http.Response, error) {
			return c.api.ListAgentTwins(
				ctx, &edgeapi.ListAgentTwinsParams{Limit: p.limit, Cursor: p.cursor, SiteId: given(c, "site", a.site)},
			)
		},
	)
}

func (a *agentSession) agentPolicies() *cobra.Command {
	return list(
		a.session,
		verb{
			use:     "policies",
			short:   "List the policy packs that bind the site",
			example: "  mainstay edge agent policies",
		},
		policyColumns(),
		func(ctx context.Context, c *call, p page) (*http.Response, error) {
			return c.api.ListAgentPolicyPacks(
				ctx,
				&edgeapi.ListAgentPolicyPacksParams{Limit: p.limit, Cursor: p.cursor, SiteId: given(c, "site", a.site)},
			)
		},
	)
}

func (a *agentSession) agentDeployments() *cobra.Command {
	return list(
		a.session,
		verb{use: "deployments", short: "List what the site should run", example: "  mainstay edge agent deployments"},
		output.Columns[edgeapi.AgentDeployment]{
			Heads: []string{"ID", "NAME", "IMAGE", "VERSION", "DESIRED", "STATUS", "REVISION", "ALLOWED"},
			Row: func(v edgeapi.AgentDeployment) []any {
				return []any{v.Id, v.Name, v.Image, v.Version, v.DesiredState, v.Status, v.Revision, v.Allowed}
			},
		},
		func(ctx context.Context, c *call, p page) (*http.Response, error) {
			return c.api.ListAgentDeployments(
				ctx,
				&edgeapi.ListAgentDeploymentsParams{Limit: p.limit, Cursor: p.cursor, SiteId: given(c, "site", a.site)},
			)
		},
	)
}
