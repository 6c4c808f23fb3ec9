package lb

import (
	"context"
	"errors"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/nexthop"
)

// hops implements Hops with the kernel's tables.
type hops struct{ *nexthop.Resolver }

// Want replaces the set of targets.
func (h hops) Want(targets []Target) {
	wanted := make([]nexthop.Target, len(targets))
	for i, t := range targets {
		wanted[i] = nexthop.Target(t)
	}
	h.Resolver.Want(wanted)
}

// Lookup returns the next hop of a target.
func (h hops) Lookup(t Target) datapath.NextHop { return h.Resolver.Lookup(nexthop.Target(t)) }

// OpenPlane attaches to the interfaces of this machine. If that fails, the error says what is
// missing and how to get it.
func OpenPlane(ctx context.Context, o PlaneOptions) (Plane, Hops, error) {
	plane, err := datapath.Open(ctx, datapath.Options{
		Interface:     o.Interfaces[0],
		More:          o.Interfaces[1:],
		Mode:          string(o.Mode),
		TunnelSource:  o.TunnelSource,
		TunnelSource6: o.TunnelSource6,
		Sources:       o.Sources,
		Flows:         o.MaxFlows,
		Dir:           o.BPFDir,
		Log:           o.Log,
	})
	if err != nil {
		return nil, nil, fault.Wrap(
			fault.Unavailable, err, "cannot attach to %s%s", strings.Join(o.Interfaces, ", "), missing(Needs(o.BPFDir)),
		)
	}
	resolver, err := nexthop.New(o.Interfaces[0], o.Log)
	if err != nil {
		return nil, nil, errors.Join(
			fault.Wrap(fault.Unavailable, err, "cannot find the ways to backends"), plane.Close(),
		)
	}
	return plane, hops{resolver}, nil
}

// missing lists the unmet needs, as the end of a sentence.
func missing(needs []Need) (text string) {
	for _, n := range needs {
		if !n.Met {
			text += "; missing: " + n.Name + " (" + n.Fix + ")"
		}
	}
	return text
}

// Detach removes the program from the document's interface, with everything that it keeps in the
// kernel. found reports whether there was anything.
func Detach(cfg Config) (iface string, found bool, err error) {
	d, err := readDocument(cfg)
	if err != nil {
		return "", false, err
	}
	if found, err = datapath.Detach(cfg.BPFDir, d.Interface); err != nil {
		return d.Interface, found, fault.Wrap(
			fault.Unavailable, err, "cannot detach from %s%s", d.Interface, missing(Needs(cfg.BPFDir)),
		)
	}
	return d.Interface, found, nil
}
