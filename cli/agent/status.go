package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/agent"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

const (
	defaultData = "/var/lib/mainstay-agent"
	timeout     = 10 * time.Second
	maxAnswer   = 8 << 20 // bytes
)

// Commands are the commands to be added to `mainstay agent`. getenv reads
// environment variables.
func Commands(getenv func(string) string) []*cobra.Command { return []*cobra.Command{status(getenv)} }

func status(getenv func(string) string) *cobra.Command {
	var data, socket string
	var format output.Format
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the agent on this machine is",
		Long: `Show how the agent on this machine is: link, certificate, clock, outbox, twins, updates, deployments.

It asks through the socket in the agent's data folder, so it needs the agent to run and the right to open the socket.`,
		Example: "  mainstay agent status\n  mainstay agent status --data /srv/agent -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if data == "" {
				data = getenv("AGENT_DATA")
			}
			if data == "" {
				data = defaultData
			}
			if socket == "" {
				socket = filepath.Join(data, agentapi.Socket)
			}
			raw, s, err := ask(cmd.Context(), socket)
			if err != nil {
				return err
			}
			p := output.NewPrinter(cmd.OutOrStdout(), format)
			return p.ObjectAs(raw, func() error { return show(p, s) })
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "the agent's data folder (environment: AGENT_DATA) (default "+defaultData+")")
	cmd.Flags().StringVar(&socket, "socket", "", "the agent's socket, if it is elsewhere")
	format.AddFlag(cmd)
	return cmd
}

// ask gets the status through a socket.
func ask(ctx context.Context, socket string) (raw []byte, s agentapi.Status, err error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	client, err := agentapi.NewClient("http://localhost"+agentapi.BasePath, agentapi.WithHTTPClient(&http.Client{Transport: transport, Timeout: timeout}))
	if err != nil {
		return nil, s, err
	}
	res, err := client.GetStatus(ctx)
	if err != nil {
		return nil, s, unreachable(socket, err)
	}
	defer func() { _ = res.Body.Close() }()
	if raw, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer)); err != nil {
		return nil, s, fmt.Errorf("read the answer of %s: %w", socket, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, s, fmt.Errorf("the agent answered %s: %s", output.Escape(res.Status), output.Escape(string(raw[:min(len(raw), 512)])))
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, s, exit.Hinted(fmt.Errorf("the answer is not as the API's contract says: %w", err), "is the agent of this version?")
	}
	return raw, s, nil
}

func unreachable(socket string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return exit.Hinted(fmt.Errorf("no agent answers at %s", socket), "is it running? --data names its data folder; 'mainstay agent doctor' looks for what keeps it from working")
	case errors.Is(err, syscall.EACCES):
		return &exit.Error{Code: exit.Denied, Err: fmt.Errorf("no right to open %s", socket), Hint: "be root, or in the group that owns the socket"}
	}
	return fmt.Errorf("no answer from %s: %w", socket, err)
}

// show writes the status for a person.
func show(p *output.Printer, s agentapi.Status) error {
	link := string(s.Link.State) + " since " + p.Time(s.Link.Since)
	if s.Link.LastError != "" {
		link += ": " + output.Escape(s.Link.LastError)
	}
	skew := "unknown"
	if s.ClockSkewSeconds != nil {
		skew = "control plane ahead by " + time.Duration(*s.ClockSkewSeconds*float64(time.Second)).Round(time.Second).String()
	}
	o := s.Outbox
	outbox := fmt.Sprintf("%d events, %s of %s", o.Events, size(o.Bytes), size(o.MaxBytes))
	if o.OldestAt != nil {
		outbox += ", oldest " + p.Time(*o.OldestAt)
	}
	rows := [][]any{
		{"Site", dash(s.SiteId)}, {"Name", s.Name}, {"Version", s.Version}, {"Server", s.Server},
		{"Link", link}, {"Last heartbeat", s.Link.LastHeartbeatAt}, {"Certificate until", s.CertificateNotAfter}, {"Clock", skew},
		{"Outbox", outbox},
		{"Events", fmt.Sprintf("%d accepted, %d forwarded, %d dropped, %d refused", o.Accepted, o.Forwarded, o.Dropped, o.Refused)},
	}
	if o.LastError != "" {
		rows = append(rows, []any{"Not forwarding", o.LastError})
	}
	for _, r := range o.LastRefused {
		rows = append(rows, []any{"Refused event", fmt.Sprintf("%s (%s) %s: %s", r.EventId, r.Topic, p.Time(r.At), r.Reason)})
	}
	rows = append(rows, []any{"Twins", fmt.Sprintf("%d devices, %d with something to send", s.Twins.Devices, s.Twins.Pending)})
	for _, u := range s.Updates {
		rows = append(rows, []any{"Update of " + u.DeviceId, strings.TrimSpace(fmt.Sprintf("%s: %s %d%% %s", u.Version, u.State, u.Progress, u.Message))})
	}
	for _, d := range s.Deployments {
		rows = append(rows, []any{"Deployment " + d.Name, strings.TrimSpace(d.Status + " " + d.Message)})
	}
	return p.Rows(rows)
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func size(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
