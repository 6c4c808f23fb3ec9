package agent

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// Commands returns the commands to add to `mainstay agent`. getenv reads environment variables.
func Commands(getenv func(string) string) []*cobra.Command {
	return []*cobra.Command{status(getenv), refused(getenv)}
}

func status(getenv func(string) string) *cobra.Command {
	var at place
	var style output.Style
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the agent on this machine is",
		Long: `Show how the agent on this machine is: link, certificate, clock, outbox, twins, updates, deployments.

It asks through the socket in the agent's data folder, so it needs the agent to run and the right to open the socket.`,
		Example: "  mainstay agent status\n  mainstay agent status --data /srv/agent -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := at.ask(
				getenv, func(c *agentapi.Client) (*http.Response, error) { return c.GetStatus(cmd.Context()) },
			)
			s, err := decode[agentapi.Status](a, err)
			if err != nil {
				return err
			}
			p := output.NewPrinter(cmd.OutOrStdout(), style)
			return p.ObjectAs(a.Body, func() error { return show(p, s) })
		},
	}
	at.addFlags(cmd)
	style.AddFlags(cmd)
	return cmd
}

// show prints the status as a table.
func show(p *output.Printer, s agentapi.Status) error {
	link := string(s.Link.State) + " since " + p.Time(s.Link.Since)
	if s.Link.LastError != "" {
		link += ": " + output.Escape(s.Link.LastError)
	}
	skew := "unknown"
	if s.ClockSkewSeconds != nil {
		skew = "control plane ahead by " + time.Duration(*s.ClockSkewSeconds*float64(time.Second)).Round(
			time.Second,
		).String()
	}
	o := s.Outbox
	outbox := fmt.Sprintf("%d events, %s of %s", o.Events, size(o.Bytes), size(o.MaxBytes))
	if o.OldestAt != nil {
		outbox += ", oldest " + p.Time(*o.OldestAt)
	}
	rows := [][]any{}
	for _, alert := range s.Alerts {
		rows = append(rows, []any{"ALERT", alert.Message})
	}
	rows = append(rows, [][]any{
		{"Site", cmp.Or(s.SiteId, "-")},
		{"Name", s.Name},
		{"Version", s.Version},
		{"Server", s.Server},
		{
			"Link",
			link,
		},
		{"Last heartbeat", s.Link.LastHeartbeatAt},
		{"Certificate until", s.CertificateNotAfter},
		{"Clock", skew},
		{"Outbox", outbox},
		{
			"Events",
			fmt.Sprintf(
				"%d accepted, %d forwarded, %d dropped, %d refused", o.Accepted, o.Forwarded, o.Dropped, o.Refused,
			),
		},
	}...)
	if o.LastError != "" {
		rows = append(rows, []any{"Not forwarding", o.LastError})
	}
	if o.SetAside > 0 || o.Discarded > 0 {
		rows = append(rows, []any{
			"Set aside",
			fmt.Sprintf("%d refused events (mainstay agent refused); %d discarded", o.SetAside, o.Discarded),
		})
	}
	for _, r := range o.LastRefused {
		rows = append(
			rows, []any{"Refused event", fmt.Sprintf("%s (%s) %s: %s", r.EventId, r.Topic, p.Time(r.At), r.Reason)},
		)
	}
	rows = append(
		rows, []any{"Twins", fmt.Sprintf("%d devices, %d with something to send", s.Twins.Devices, s.Twins.Pending)},
	)
	for _, u := range s.Updates {
		rows = append(rows, []any{
			"Update of " + u.DeviceId,
			strings.TrimSpace(fmt.Sprintf("%s: %s %d%% %s", u.Version, u.State, u.Progress, u.Message)),
		})
	}
	for _, d := range s.Deployments {
		rows = append(rows, []any{"Deployment " + d.Name, strings.TrimSpace(d.Status + " " + d.Message)})
	}
	return p.Rows(rows)
}

func size(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
