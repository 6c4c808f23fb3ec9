package edge

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s *session) campaignCreate() *cobra.Command {
	var a artifactFlags
	var targets targetFlags
	var stages []int
	var success, failure float64
	var minDevices, soak, deviceTimeout int
	var promote, abort bool
	cmd := s.Object(verb.Verb{
		Required: []string{"version", "url", "sha256"},
		Use:      "create NAME", Short: "Draft a staged update",
		Long: `Draft a staged update; 'mainstay edge campaign start' begins it.

A device is a target when --device names it, or when --site names its site and it has all of the labels. Labels without
a site select from all sites.`,
		Example: `  mainstay edge campaign create fw-2.1 --version 2.1.0 --url https://files.example.com/fw-2.1.0.bin \
    --sha256 $(sha256sum fw-2.1.0.bin | cut -d' ' -f1) --site plant-7 --stages 5,25,100 --auto-promote --soak-seconds 600`,
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		in := edgeapi.CampaignInput{
			Name:                 c.Args[0],
			Version:              a.version,
			Url:                  a.url,
			Sha256:               a.sha256,
			Size:                 verb.Given(c, "size", a.size),
			Stages:               verb.Given(c, "stages", stages),
			SuccessThreshold:     verb.Given(c, "success-threshold", success),
			FailureThreshold:     verb.Given(c, "failure-threshold", failure),
			MinDevices:           verb.Given(c, "min-devices", minDevices),
			SoakSeconds:          verb.Given(c, "soak-seconds", soak),
			DeviceTimeoutSeconds: verb.Given(c, "device-timeout-seconds", deviceTimeout),
			AutoPromote:          verb.Given(c, "auto-promote", promote),
			AutoAbort:            verb.Given(c, "auto-abort", abort),
		}
		var err error
		if in.Targets, err = targets.of(c); err != nil {
			return nil, err
		}
		return c.API.CreateCampaign(ctx, in)
	})
	a.add(cmd)
	targets.add(cmd)
	f := cmd.Flags()
	f.IntSliceVar(&stages, "stages", []int{5, 25, 100}, "cumulative percent, ending with 100")
	f.Float64Var(&success, "success-threshold", 0.9, "share of a stage's devices that must succeed")
	f.Float64Var(
		&failure, "failure-threshold", 0.1, "share of failed devices above which the campaign pauses or aborts",
	)
	f.IntVar(&minDevices, "min-devices", 1, "failures count only when so many devices have finished")
	f.IntVar(&soak, "soak-seconds", 0, "wait so long before a stage is promoted automatically")
	f.IntVar(
		&deviceTimeout, "device-timeout-seconds", 3600,
		"a device that has not finished by then counts as failed; 0 waits forever",
	)
	f.BoolVar(&promote, "auto-promote", false, "go on to the next stage without being asked")
	f.BoolVar(&abort, "auto-abort", false, "abort instead of pausing when too many devices fail")
	return cmd
}

// campaignTargets counts what campaignCreate would select.
func (s *session) campaignTargets() *cobra.Command {
	var targets targetFlags
	cmd := s.Object(verb.Verb{
		Use: "count-targets", Short: "Count the devices that a campaign with these targets would have now",
		Example: "  mainstay edge campaign count-targets --site plant-7 --label line=b",
	}, func(ctx context.Context, c *call) (*http.Response, error) {
		in, err := targets.of(c)
		if err != nil {
			return nil, err
		}
		return c.API.CountTargets(ctx, in)
	})
	targets.add(cmd)
	return cmd
}

// targetFlags are the flags that select the devices of a campaign.
type targetFlags struct {
	sites, devices []string
	labels         verb.Pairs
}

func (t *targetFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&t.sites, "site", nil, "site whose devices are targets; may be repeated")
	f.StringArrayVar(&t.devices, "device", nil, "device that is a target; may be repeated")
	f.Var(&t.labels, "label", "label that targets must have; may be repeated")
}

func (t *targetFlags) of(c *call) (edgeapi.CampaignTargets, error) {
	out := edgeapi.CampaignTargets{
		SiteIds: verb.Given(c, "site", t.sites), DeviceIds: verb.Given(c, "device", t.devices),
		Labels: verb.Given(c, "label", edgeapi.Labels(t.labels)),
	}
	if out.SiteIds == nil && out.DeviceIds == nil && out.Labels == nil {
		return out, exit.Usagef("the targets are missing: --site, --label or --device")
	}
	return out, nil
}
