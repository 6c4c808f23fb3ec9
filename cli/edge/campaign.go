package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) campaigns() *cobra.Command {
	cmd := verb.Group(
		"campaign", "Campaigns: staged updates of many devices", "  mainstay edge campaign watch fw-2.1", "campaigns",
	)
	cmd.AddCommand(
		s.campaignList(),
		s.show(
			"campaign", "CAMPAIGN", "campaign",
			func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetCampaign(ctx, c.Args[0]) },
		),
		s.campaignCreate(),
		s.campaignTargets(),
		s.campaignStep(
			"start",
			"Freeze a draft's targets and begin its first stage",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.API.StartCampaign(ctx, c.Args[0])
			},
		),
		s.campaignStep(
			"promote",
			"Go on to the next stage, also when paused",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.API.PromoteCampaign(ctx, c.Args[0])
			},
		),
		s.campaignStep(
			"pause",
			"Ask no more devices until the campaign is resumed",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.API.PauseCampaign(ctx, c.Args[0])
			},
		),
		s.campaignStep(
			"resume",
			"Continue a paused campaign where it was",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.API.ResumeCampaign(ctx, c.Args[0])
			},
		),
		s.campaignRetry(),
		s.campaignStep(
			"abort",
			"Stop a campaign; updates that devices have begun go on",
			func(ctx context.Context, c *call) (*http.Response, error) {
				return c.API.AbortCampaign(ctx, c.Args[0])
			},
		),
		s.campaignDevices(),
		s.campaignWatch(),
	)
	return cmd
}

func (s *session) campaignStep(name, short string, r request) *cobra.Command {
	return s.Object(
		verb.Verb{
			Use: name + " CAMPAIGN", Short: short, Example: "  mainstay edge campaign " + name + " CAMPAIGN",
		}, r,
	)
}

func (s *session) campaignRetry() *cobra.Command {
	var devices []string
	cmd := s.Object(
		verb.Verb{
			Use: "retry CAMPAIGN", Short: "Ask failed devices again; a paused campaign continues",
			Example: "  mainstay edge campaign retry fw-2.1\n  mainstay edge campaign retry fw-2.1 --device pump-1",
		}, func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.RetryCampaign(ctx, c.Args[0], edgeapi.CampaignRetry{DeviceIds: verb.Given(c, "device", devices)})
		},
	)
	cmd.Flags().StringSliceVar(&devices, "device", nil, "ask only this device, by ID; may be repeated")
	return cmd
}

func (s *session) campaignList() *cobra.Command {
	var status, search, sort string
	var paused bool
	cmd := verb.List(s.Session, verb.Verb{
		Use: "list", Short: "List campaigns, newest first",
		Example: "  mainstay edge campaign list --status running\n  mainstay edge campaign list --paused\n  mainstay edge campaign list --search 2.1 --sort name",
	}, output.Columns[edgeapi.Campaign]{
		Heads: []string{
			"ID", "NAME", "VERSION", "STATUS", "STAGE", "TOTAL", "SUCCEEDED", "FAILED", "CREATED", "PAUSED",
		},
		Row: func(v edgeapi.Campaign) []any {
			return []any{
				v.Id, v.Name, v.Version, v.Status, stageOf(v), v.Counts.Total, v.Counts.Succeeded, v.Counts.Failed,
				v.CreatedAt, v.PausedReason,
			}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListCampaigns(ctx, &edgeapi.ListCampaignsParams{
			Limit:  p.Limit,
			Cursor: p.Cursor,
			Status: verb.Given(c, "status", edgeapi.CampaignStatus(status)),
			Paused: verb.Given(c, "paused", paused),
			Q:      verb.Given(c, "search", search),
			Sort:   verb.Given(c, "sort", edgeapi.ListCampaignsParamsSort(sort)),
		})
	})
	f := cmd.Flags()
	f.StringVar(&status, "status", "", "draft, running, completed or aborted")
	f.BoolVar(&paused, "paused", false, "only running campaigns that wait for a person; =false: only those that do not")
	f.StringVar(
		&search, "search", "", "only campaigns with this text in the name, the ID, the version, or the artifact's URL or SHA-256",
	)
	f.StringVar(&sort, "sort", "", "id or name; a dash before it means descending")
	return cmd
}

func (s *session) campaignDevices() *cobra.Command {
	var outcome string
	cmd := verb.List(s.Session, verb.Verb{
		Use: "devices CAMPAIGN", Short: "List a campaign's devices with stage and outcome, in rollout order",
		Example: "  mainstay edge campaign devices fw-2.1 --outcome failed",
	}, output.Columns[edgeapi.CampaignDevice]{
		Heads: []string{"DEVICE", "SITE", "STAGE", "OUTCOME", "MESSAGE"},
		Row: func(v edgeapi.CampaignDevice) []any {
			return []any{v.DeviceId, siteRef(v.SiteId), v.Stage + 1, v.Outcome, v.Message}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListCampaignDevices(
			ctx,
			c.Args[0],
			&edgeapi.ListCampaignDevicesParams{Limit: p.Limit, Cursor: p.Cursor,
				Outcome: verb.Given(c, "outcome", edgeapi.CampaignOutcome(outcome))},
		)
	})
	cmd.Flags().StringVar(&outcome, "outcome", "", "waiting, pending, in_progress, succeeded, failed or removed")
	return cmd
}
