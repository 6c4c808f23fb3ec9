package vm

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// drawnSamples is how many samples a sparkline shows.
const drawnSamples = 40

func (s commands) metrics() *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := s.Command(verb.Verb{
		Use:   "metrics VM",
		Short: "Show what a VM uses now, or watch it",
		Long: `Show what a VM uses now: processor time since it started, memory resident on the host, and what went to and from disk and
network. With --watch what it uses a second is drawn until Ctrl-C, or printed line by line where nobody watches.`,
		Example: "  mainstay vm metrics web\n  mainstay vm metrics web --watch --interval 500ms",
	}, func(ctx context.Context, c *daemon.Call) error {
		if interval <= 0 {
			return exit.Usagef("--interval must be more than 0")
		}
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		if watch {
			return watchMetrics(ctx, c, id, interval)
		}
		a, err := c.Send(c.API.GetVMMetrics(ctx, id))
		m, err := daemon.Decode[hypervisorapi.VMMetrics](a, err)
		if err != nil {
			return err
		}
		return c.Out.ObjectAs(a.Body, func() error { return c.Out.Rows(metricsRows(m)) })
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "look again and again")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "how often to look, with --watch")
	return cmd
}

func metricsRows(m hypervisorapi.VMMetrics) [][]any {
	return [][]any{
		{"Processor time", fmt.Sprintf("%.2f s", m.CpuSeconds)},
		{"Memory", verb.Bytes(m.MemoryBytes)},
		{"Disk read", verb.Bytes(m.DiskReadBytes)},
		{"Disk written", verb.Bytes(m.DiskWrittenBytes)},
		{"Network received", verb.Bytes(m.NetReceivedBytes)},
		{"Network sent", verb.Bytes(m.NetSentBytes)},
		{"At", m.At},
	}
}

// series is one metric over time: thousandths of a processor, or bytes per second.
type series struct {
	name   string
	rate   func(before, now hypervisorapi.VMMetrics) float64 // over the whole span
	show   func(int64) string
	values []int64
}

func metricsSeries() []*series {
	rate := func(n int64) string { return verb.Bytes(n) + "/s" }
	return []*series{
		{name: "Processors", show: func(n int64) string { return fmt.Sprintf("%.1f%%", float64(n)/10) },
			rate: func(a, b hypervisorapi.VMMetrics) float64 { return (b.CpuSeconds - a.CpuSeconds) * 1000 }},
		{
			name: "Disk read",
			show: rate,
			rate: func(a, b hypervisorapi.VMMetrics) float64 { return float64(b.DiskReadBytes - a.DiskReadBytes) },
		},
		{
			name: "Disk written",
			show: rate,
			rate: func(a, b hypervisorapi.VMMetrics) float64 {
				return float64(b.DiskWrittenBytes - a.DiskWrittenBytes)
			},
		},
		{
			name: "Received",
			show: rate,
			rate: func(a, b hypervisorapi.VMMetrics) float64 {
				return float64(b.NetReceivedBytes - a.NetReceivedBytes)
			},
		},
		{
			name: "Sent",
			show: rate,
			rate: func(a, b hypervisorapi.VMMetrics) float64 { return float64(b.NetSentBytes - a.NetSentBytes) },
		},
	}
}

// add appends the rate between two samples. Counters restart at zero with the VM.
func (s *series) add(before, now hypervisorapi.VMMetrics) {
	value := int64(0)
	if span := now.At.Sub(before.At).Seconds(); span > 0 {
		value = max(int64(s.rate(before, now)/span), 0)
	}
	s.values = append(s.values, value)
	s.values = s.values[max(len(s.values)-drawnSamples, 0):]
}

func (s *series) latest() string { return s.show(s.values[len(s.values)-1]) }

func watchMetrics(ctx context.Context, c *daemon.Call, id string, interval time.Duration) error {
	all := metricsSeries()
	var before *hypervisorapi.VMMetrics
	drawn := 0
	for {
		a, err := c.Send(c.API.GetVMMetrics(ctx, id))
		now, err := daemon.Decode[hypervisorapi.VMMetrics](a, err)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if before != nil {
			for _, s := range all {
				s.add(*before, now)
			}
			if drawn, err = drawMetrics(c, a, now, all, drawn); err != nil {
				return err
			}
		}
		before = &now
		if !pause(ctx, interval) {
			return nil
		}
	}
}

// drawMetrics shows a sample, and returns how many lines the next one must overwrite.
func drawMetrics(c *daemon.Call, a daemon.Answer, now hypervisorapi.VMMetrics, all []*series, drawn int) (int, error) {
	if !c.Out.Terminal || !c.Table() {
		return 0, c.Out.Line(a.Body, func() string {
			parts := []string{
				now.At.UTC().Format(time.RFC3339),
				"memory=" + strings.ReplaceAll(verb.Bytes(now.MemoryBytes), " ", ""),
			}
			for _, s := range all {
				parts = append(
					parts,
					strings.ReplaceAll(strings.ToLower(s.name), " ", "_")+"="+strings.ReplaceAll(s.latest(), " ", ""),
				)
			}
			return output.Escape(strings.Join(parts, " "))
		})
	}
	lines := []string{fmt.Sprintf("%-13s %s", "Memory", verb.Bytes(now.MemoryBytes))}
	for _, s := range all {
		lines = append(lines, fmt.Sprintf("%-13s %-12s %s", s.name, s.latest(), output.Sparkline(s.values)))
	}
	text := strings.Join(lines, "\x1b[K\n") + "\x1b[K\n"
	if drawn > 0 {
		text = fmt.Sprintf("\x1b[%dA", drawn) + text
	}
	_, err := io.WriteString(c.Out.Out, text)
	return len(lines), err
}
