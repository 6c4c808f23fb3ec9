package vm

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) host() *cobra.Command {
	return s.Command(
		verb.Verb{
			Use:     "host",
			Short:   "Show what the host can run, and what is left of it",
			Example: "  mainstay vm host\n  mainstay vm host -o json",
		},
		func(ctx context.Context, c *daemon.Call) error {
			a, err := c.Send(c.API.GetHost(ctx))
			h, err := daemon.Decode[hypervisorapi.Host](a, err)
			if err != nil {
				return err
			}
			return c.Out.ObjectAs(a.Body, func() error { return c.Out.Rows(hostRows(h)) })
		},
	)
}

func hostRows(h hypervisorapi.Host) [][]any {
	rows := [][]any{
		{"Host", h.Name + ", version " + h.Version},
		{"VMs", h.Vms},
		{"Processors", fmt.Sprintf("%d, %d not given to VMs", h.Vcpus, h.FreeVcpus)},
		{"Memory", fmt.Sprintf("%d MiB, %d MiB not given to VMs", h.MemoryMib, h.FreeMemoryMib)},
	}
	if n := h.TemplateBytes; n != nil {
		rows = append(rows, []any{"Templates", verb.Bytes(*n) + " on disk"})
	}
	for _, b := range h.Backends {
		state := "available"
		if !b.Available {
			state = "not available"
		}
		if b.Version != nil && *b.Version != "" {
			state += ", version " + *b.Version
		}
		rows = append(rows, []any{"Backend " + string(b.Name), state + ": " + b.Detail})
	}
	return rows
}

func (s commands) whoami() *cobra.Command {
	return s.Object(verb.Verb{Use: "whoami", Short: "Show whose token this is", Example: "  mainstay vm whoami"},
		func(ctx context.Context, c *daemon.Call) (*http.Response, error) { return c.API.GetMe(ctx) })
}

func (s commands) ping() *cobra.Command {
	return s.Command(
		verb.Verb{Use: "ping VM", Short: "Ask the agent in a guest for an answer", Example: "  mainstay vm ping web"},
		func(ctx context.Context, c *daemon.Call) error {
			id, err := daemon.VMID(ctx, c, c.Args[0])
			if err != nil {
				return err
			}
			a, err := c.Send(c.API.PingAgent(ctx, id, hypervisorapi.Nothing{}))
			pong, err := daemon.Decode[hypervisorapi.Pong](a, err)
			if err != nil {
				return err
			}
			return c.Done(
				a, "The agent of %s, version %s, answered in %.1f ms.", c.Args[0], pong.Version, pong.RoundTripMs,
			)
		},
	)
}
