package lb

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/cli/output"
)

func vipColumns() output.Columns[lbapi.VIP] {
	return output.Columns[lbapi.VIP]{
		Heads: []string{
			"VIP", "PORTS", "MODE", "HEALTHY", "FLOWS", "PACKETS", "BYTES", "RATE LIMITED", "NO BACKEND",
			"UNSERVED", "ANNOUNCED",
		},
		Row: func(v lbapi.VIP) []any {
			ports := strconv.Itoa(v.VipPort)
			if v.VipPortEnd != nil {
				ports = fmt.Sprintf("%d-%d", v.VipPort, *v.VipPortEnd)
			}
			healthy := 0
			for _, b := range v.Backends {
				if b.State == lbapi.BackendStateHealthy {
					healthy++
				}
			}
			return []any{
				v.Name, ports, v.Mode, fmt.Sprintf("%d of %d", healthy, len(v.Backends)), v.Flows, v.Packets,
				v.Bytes, v.DroppedRateLimited, v.DroppedNoBackend, v.Unserved, v.Announced,
			}
		},
	}
}

func backendColumns() output.Columns[lbapi.BackendRow] {
	return output.Columns[lbapi.BackendRow]{
		Heads: []string{"ID", "BACKEND", "VIP", "STATE", "WEIGHT", "PACKETS", "BYTES", "DETAIL"},
		Row: func(b lbapi.BackendRow) []any {
			state := string(b.State)
			if b.AdminDraining && b.State == lbapi.BackendStateDraining {
				state += " (operator)"
			}
			weight := strconv.Itoa(b.Weight)
			if b.WeightOverridden {
				weight += " (override)"
			}
			return []any{
				b.Id, net.JoinHostPort(b.Address, strconv.Itoa(b.Port)), b.Vip, state, weight, b.Packets, b.Bytes,
				b.Detail,
			}
		},
	}
}

// sentence returns an explanation in words.
func sentence(e lbapi.Explanation) string {
	vip, backend, hashed := output.Escape(e.Vip), output.Escape(e.Backend), output.Escape(e.Hashed)
	slot := fmt.Sprintf("slot %d of %d", e.Slot, e.Slots)
	switch e.Reason {
	case lbapi.ExplanationReasonNoVip:
		return "No VIP has this address, port and protocol: the packet is not for the load balancer."
	case lbapi.ExplanationReasonNoBackend:
		return fmt.Sprintf("%s drops it: no backend is healthy.", vip)
	case lbapi.ExplanationReasonFlow:
		return fmt.Sprintf(
			"%s sends it to %s, where the flow is already. A new flow would get %s (%s).", vip, backend,
			cmp.Or(hashed, "no backend"), slot,
		)
	case lbapi.ExplanationReasonAffinity:
		return fmt.Sprintf(
			"%s sends it to %s, which the client's address had before. Without that it would be %s (%s).", vip,
			backend, cmp.Or(hashed, "no backend"), slot,
		)
	}
	return fmt.Sprintf("%s sends it to %s: it is a new flow, and its hash is %s.", vip, backend, slot)
}

func nodeRows(p *output.Printer, n lbapi.Node) [][]any {
	attached := "not attached"
	if n.Attached {
		attached = "attached as " + n.XdpModeAttached
	}
	rows := [][]any{
		{
			"Interface",
			fmt.Sprintf(
				"%s, %s (asked for: %s)", strings.Join(append([]string{n.Interface}, n.BackendInterfaces...), ", "),
				attached, n.XdpMode,
			),
		},
		{"Ready", cmp.Or(n.NotReady, "yes")},
		{"Version", n.Version},
		{"Started", n.StartedAt},
		{"Configuration", fmt.Sprintf("%s, loaded %s", n.Config.Path, p.Time(n.Config.LoadedAt))},
	}
	if n.Config.Error != "" {
		rows = append(rows, []any{"Refused file", n.Config.Error})
	}
	rows = append(rows, []any{
		"Flows",
		fmt.Sprintf(
			"%d entries, %d evicted, %d replies of no known flow", n.Flows.Entries, n.Flows.Evictions,
			n.Flows.LostReplies,
		),
	})
	for _, reason := range slices.Sorted(maps.Keys(n.Drops)) {
		if n.Drops[reason] > 0 {
			rows = append(rows, []any{"Dropped: " + reason, n.Drops[reason]})
		}
	}
	for _, s := range n.Bgp {
		text := fmt.Sprintf("AS %d, %s since %s", s.Asn, s.State, p.Time(s.Since))
		if s.Reason != "" && s.State != lbapi.BGPSessionStateEstablished {
			text += ": " + s.Reason
		}
		rows = append(rows, []any{"BGP " + s.Peer, text})
	}
	for _, d := range n.OrchestratorDrains {
		rows = append(rows, []any{"Drained by " + d.Source, strings.Join(d.Backends, ", ")})
	}
	return rows
}
