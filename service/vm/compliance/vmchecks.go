package compliance

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/dataplane"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

const day = 24 * time.Hour

// vmChecks are the checks of a VM's configuration.
func vmChecks() []Check {
	return []Check{
		{
			ID: "vm-backup-weekly", level: 1, Title: "There is a backup that is at most a week old",
			Remedy: "Back the VM up, or add it to a backup policy.", vm: backedUpWithin(7*day + time.Hour),
		},
		{
			ID: "vm-backup-daily", level: 2, Title: "There is a backup that is at most a day old",
			Remedy: "Add the VM to a backup policy that runs daily.", vm: backedUpWithin(day + time.Hour),
		},
		{
			ID: "vm-backup-policy", level: 1, Title: "A backup policy includes the VM",
			Remedy: "Give the VM a tag of an enabled backup policy.", vm: inBackupPolicy,
		},
		{
			ID: "vm-backups-whole", level: 1, Title: "No backup is known to be damaged",
			Remedy: "Back the VM up again, and repair or delete the damaged backups.", vm: backupsWhole,
		},
		{
			ID: "vm-snapshots-fresh", level: 1, Title: "No snapshot is older than 30 days",
			Remedy: "Delete old snapshots: they hold old data and old secrets, and make the disk grow.", vm: snapshotsFresh,
		},
		{
			ID: "vm-agent", level: 1, Title: "The guest's agent answers",
			Remedy: "Install the agent, so that backups are consistent and the guest can be checked.", vm: agentConnected,
		},
		{
			ID: "vm-network-state", level: 1, Title: "The network policy of the VM is in force",
			Remedy: "See what the network policy's status says; VMs need a bridge network.", vm: networkInForce,
		},
		{
			ID: "vm-no-open-management", level: 1, Title: "The network policy does not open management ports to everybody",
			Remedy: "Name the networks that may reach the ports 22, 3389 and 5900.", vm: noOpenManagement,
		},
		{
			ID: "vm-ingress-deny", level: 2, Title: "What may reach the VM is denied unless a rule allows it",
			Remedy: "Give the VM a network policy with ingress rules, or with the ingress default deny.", vm: ingressDenied,
		},
		{
			ID: "vm-egress-deny", level: 2, Title: "What the VM may reach is denied unless a rule allows it",
			Remedy: "Give the VM a network policy with egress rules, or with the egress default deny.", vm: egressDenied,
		},
		{
			ID: "vm-protected", level: 2, Title: "The VM is protected against deletion",
			Remedy: "Set protected.", vm: func(f *facts) verdict { return passedIf(f.vm.Protected, "protected is %t", f.vm.Protected) },
		},
		{
			ID: "vm-nothing-pending", level: 2, Title: "No change waits for the next start",
			Remedy: "Stop and start the VM.", vm: nothingPending,
		},
		{
			ID: "vm-restarted", level: 2, Title: "The VM has started within the last 90 days",
			Remedy: "Restart the VM, so that it runs the newest kernel that is installed.", vm: restarted,
		},
	}
}

func backedUpWithin(age time.Duration) func(f *facts) verdict {
	return func(f *facts) verdict {
		for _, b := range f.backups {
			if b.Status == record.BackupCompleted {
				return passedIf(f.now.Sub(b.CreatedAt.Time) <= age, "the newest backup is of %s", date(b.CreatedAt.Time))
			}
		}
		return failed("there is no backup")
	}
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func inBackupPolicy(f *facts) verdict {
	for _, p := range f.policies {
		shared := func(tag string) bool { return slices.Contains(f.vm.Tags.V, tag) }
		if p.Enabled && (p.Tenant == "" || p.Tenant == f.vm.Tenant) && slices.ContainsFunc(p.Spec.V.Tags, shared) {
			return passed("the policy %s", p.Name)
		}
	}
	return failed("no enabled policy names a tag of the VM")
}

func backupsWhole(f *facts) verdict {
	damaged := 0
	for _, b := range f.backups {
		if b.Status == record.BackupDamaged {
			damaged++
		}
	}
	return passedIf(damaged == 0, "%d of %d backups are damaged", damaged, len(f.backups))
}

func snapshotsFresh(f *facts) verdict {
	const oldest = 30 * day
	for _, s := range f.snapshots {
		if f.now.Sub(s.CreatedAt.Time) > oldest {
			return failed("the snapshot %s is of %s", s.Name, date(s.CreatedAt.Time))
		}
	}
	return passed("%d snapshots", len(f.snapshots))
}

func agentConnected(f *facts) verdict {
	for _, a := range f.guest {
		if a.problem == "" {
			return passed("it has answered") // what is stored may be older
		}
	}
	if !f.vm.Agent.V.Connected {
		return failed("no agent answers")
	}
	return passed("version %s", f.vm.Agent.V.Version)
}

func networkInForce(f *facts) verdict {
	switch s := f.network; s.State {
	case dataplane.Applied:
		return passed("applied")
	case dataplane.None:
		return failed("no policy applies to the VM")
	default:
		return failed("%s %s", s.State, caller.Caller{}.Public(s.Reason))
	}
}

// policyOf returns what is enforced of a VM's network policy, or why there is nothing to judge.
func policyOf(f *facts) (*netpolicy.Document, verdict) {
	if f.network.State != dataplane.Applied || f.network.Effective.Document == nil {
		return nil, failed("no network policy is in force")
	}
	return f.network.Effective.Document, verdict{}
}

func ingressDenied(f *facts) verdict {
	p, none := policyOf(f)
	if p == nil {
		return none
	}
	return passedIf(p.Ingress.Default == netpolicy.Deny, "the default is %s", p.Ingress.Default)
}

func egressDenied(f *facts) verdict {
	p, none := policyOf(f)
	if p == nil {
		return none
	}
	return passedIf(p.Egress.Default == netpolicy.Deny, "the default is %s", p.Egress.Default)
}

// noOpenManagement looks for rules that let every address reach a management port.
func noOpenManagement(f *facts) verdict {
	p, none := policyOf(f)
	if p == nil {
		return none
	}
	if p.Ingress.Default != netpolicy.Deny {
		return failed("the default of ingress is %s", p.Ingress.Default)
	}
	for _, r := range p.Ingress.Rules {
		if r.Action == netpolicy.Allow && reachesAny(&r, managementPorts) && everybody(r.Peers) {
			return failed("the rule %s", r.Name)
		}
	}
	return passed("no rule of %d", len(p.Ingress.Rules))
}

var managementPorts = []int{22, 3389, 5900}

// everybody reports whether peers include nearly every address.
func everybody(peers []netpolicy.Peer) bool {
	const widest = 8 // bits of a network that is one organization's at most
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p netpolicy.Peer) bool {
		prefix, err := netip.ParsePrefix(p.CIDR)
		return err == nil && prefix.Bits() < widest
	})
}

// reachesAny reports whether a rule's ports include one of some TCP ports.
func reachesAny(r *netpolicy.Rule, ports []int) bool {
	return slices.ContainsFunc(ports, func(port int) bool { return reaches(r, port) })
}

func reaches(r *netpolicy.Rule, port int) bool {
	return len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, func(p netpolicy.Port) bool {
		return (p.Protocol == "tcp" || p.Protocol == "any") && (p.Port == 0 || p.Port <= port && port <= max(p.Port, p.EndPort))
	})
}

func nothingPending(f *facts) verdict {
	return passedIf(len(f.vm.Pending.V) == 0, "waiting: %d %s", len(f.vm.Pending.V), strings.Join(f.vm.Pending.V, ", "))
}

func restarted(f *facts) verdict {
	const longest = 90 * day
	if f.vm.StartedAt.IsZero() {
		return skipped("it is not known when it started")
	}
	return passedIf(f.now.Sub(f.vm.StartedAt.Time) <= longest, "started %s", date(f.vm.StartedAt.Time))
}
