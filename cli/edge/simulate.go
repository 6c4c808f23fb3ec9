package edge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/edge/simulator"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/terminal"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/kit/rest"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

func (s *session) simulate() *cobra.Command {
	var cfg simulator.Config
	var duration time.Duration
	var token string
	cmd := s.Command(verb.Verb{
		Use:   "simulate",
		Short: "Play a fleet of sites and devices against the server",
		Long: `Simulate a fleet of sites and devices against the server: real enrollments with keys and certificates, heartbeats, events,
twins, deployments and updates, each site with its own token. It runs until interrupted, or for --duration, and then
prints what it did. The sites stay, and go offline.

--fail-rate makes that share of updates fail, in the ways in which updates fail in the field. --chaos cuts links for
a while, loses answers, and makes devices hang; what was measured meanwhile arrives later, once.

The enrollment token is found as by 'mainstay edge site enroll'.`,
		Example: `  mainstay edge simulate --sites 20 --devices 100
  mainstay edge simulate --sites 10000 --devices 100000 --duration 10m --fail-rate 0.02 --chaos`,
	}, func(ctx context.Context, c *call) error {
		if cfg.Sites < 1 || cfg.Devices < 0 || cfg.Workers < 1 {
			return exit.Usagef("--sites and --workers must be at least 1, --devices at least 0")
		}
		if cfg.FailRate < 0 || cfg.FailRate > 1 {
			return exit.Usagef("--fail-rate must be between 0 and 1")
		}
		var err error
		if cfg.EnrollmentToken, err = enrollmentToken(c, token); err != nil {
			return err
		}
		if cfg.Client, err = fleetClient(c, cfg.Workers); err != nil {
			return err
		}
		if duration > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, duration)
			defer cancel()
		}
		if cfg.Prefix == "" {
			var random [3]byte
			_, _ = rand.Read(random[:]) // never fails (crypto/rand)
			cfg.Prefix = hex.EncodeToString(random[:])
		}
		cfg.Version, cfg.Now = telemetry.BuildInfo().Version, time.Now
		return simulate(ctx, c, cfg)
	})
	f := cmd.Flags()
	f.IntVar(&cfg.Sites, "sites", 10, "how many sites")
	f.IntVar(&cfg.Devices, "devices", 100, "how many devices in all")
	f.Float64Var(&cfg.FailRate, "fail-rate", 0, "part of the updates and deployments that fails, 0 to 1")
	f.BoolVar(&cfg.Chaos, "chaos", false, "cut links, lose answers, hang devices")
	f.DurationVar(&duration, "duration", 0, "end by itself after this time")
	f.DurationVar(
		&cfg.Heartbeat, "heartbeat", 0, "time between two heartbeats of a site; 0 is what the server asks for",
	)
	f.DurationVar(&cfg.EventInterval, "event-interval", 10*time.Second, "time between two events of a site; 0 sends none")
	f.DurationVar(&cfg.OTADuration, "update-duration", 20*time.Second, "how long a device takes for an update, about")
	f.IntVar(&cfg.Workers, "workers", 64, "requests under way at once")
	f.Uint64Var(&cfg.Seed, "seed", 1, "makes the same things happen again")
	f.StringVar(
		&cfg.Prefix, "prefix", "",
		"what the devices' ids begin with; random when absent, so that runs do not share devices",
	)
	f.StringVar(&token, "enrollment-token", "", "enrollment token (environment: EDGE_ENROLLMENT_TOKEN)")
	return cmd
}

// fleetClient returns a client without credentials that keeps one connection per worker.
func fleetClient(c *call, workers int) (*edgeapi.Client, error) {
	transport := c.Reach.Transport.Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = workers, workers
	return edgeapi.NewClient(
		c.Reach.Server.String()+edgeapi.BasePath,
		rest.WithHTTPClient(client.HTTP(transport, c.Timeout())),
		rest.WithEditor(func(_ context.Context, r *http.Request) error {
			r.Header.Set("User-Agent", "mainstay-simulator/"+telemetry.BuildInfo().Version)
			return nil
		}),
	)
}

// simulate runs the fleet, prints its status periodically, and finally a summary.
func simulate(ctx context.Context, c *call, cfg simulator.Config) error {
	every := 10 * time.Second
	status := terminal.NewStatus(c.Cmd.ErrOrStderr())
	if status.Live() {
		every = time.Second
	}
	cfg.Log = slog.New(slog.NewTextHandler(status, nil))
	fleet := simulator.New(cfg)
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for last := fleet.Stats(); ; {
		select {
		case err := <-done:
			status.Close()
			if err != nil {
				return fmt.Errorf("the first site could not enroll: %w", err)
			}
			return c.Out.Value(fleet.Stats())
		case <-ticker.C:
			now := fleet.Stats()
			status.Set(simulationLine(last, now, every))
			last = now
		}
	}
}

// simulationLine returns a one-line status of the fleet.
func simulationLine(last, now simulator.Stats, period time.Duration) string {
	rate := func(kind string) float64 {
		return float64(now.Latency[kind].Count-last.Latency[kind].Count) / period.Seconds()
	}
	if now.Registered < int64(now.Devices) && now.Outages == 0 && now.OTAStarted == 0 {
		return fmt.Sprintf(
			"%s %d of %d sites enrolled, %d of %d devices registered, %.0f/s",
			output.Bar(now.Registered+now.Enrolled, int64(now.Devices+now.Sites), 20), now.Enrolled, now.Sites,
			now.Registered, now.Devices, rate("enroll")+rate("register"),
		)
	}
	beats := now.Latency["heartbeat"]
	return fmt.Sprintf(
		"%d of %d sites online, %.0f heartbeats/s (p50 %.1f ms, p99 %.1f ms), %.0f events/s, updates: %d under way, %d done, %d failed; unanswered %d",
		now.Online, now.Sites, rate("heartbeat"), beats.P50, beats.P99,
		float64(now.EventsSent-last.EventsSent)/period.Seconds(), now.OTAStarted-now.OTASucceeded-now.OTAFailed,
		now.OTASucceeded, now.OTAFailed, now.Unanswered,
	)
}
