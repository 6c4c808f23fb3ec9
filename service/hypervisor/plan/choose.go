package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// preferred is the order in which auto tries backends for VMs other than sandboxes. The first one
// has all features.
var preferred = []string{backend.QEMU, backend.CloudHypervisor, backend.Firecracker}

// choose picks the backend of a VM and returns the reason. A requested backend that is unavailable
// is an error, since the VM would be unusable.
func (p *Planner) choose(ctx context.Context, req *Request, b *Sources) (name, why string, err error) {
	if req.Backend != backend.Auto {
		chosen := p.host.Backends()[req.Backend]
		if chosen == nil {
			return "", "", fault.InvalidField("backend", "there is no backend %s", req.Backend)
		}
		if err := chosen.Check(p.sketch(req, b, req.Backend)); err != nil {
			return "", "", err
		}
		if info := p.probe(ctx, req.Backend); !info.Available {
			return "", "", fault.New(
				fault.Unavailable, "the backend %s is not available on this host: %s", req.Backend, info.Detail,
			).WithCode("backend_unavailable")
		}
		return req.Backend, req.Backend + ", as was asked", nil
	}
	candidates := preferred
	if b.boot.RootFS != "" {
		candidates = []string{backend.Sandbox}
	}
	var passed []string
	var refused error
	for _, name := range candidates {
		one := p.host.Backends()[name]
		if one == nil {
			continue
		}
		if allowed := p.policy.AllowedBackends; len(allowed) > 0 && !slices.Contains(allowed, name) {
			passed = append(passed, name+" is not allowed (policy.allowed_backends)")
			continue
		}
		if err := one.Check(p.sketch(req, b, name)); err != nil {
			passed, refused = append(passed, name+" cannot run it: "+fault.From(err).Message), cmp.Or(refused, err)
			continue
		}
		info := p.probe(ctx, name)
		if !info.Available {
			passed = append(passed, name+" is not available: "+info.Detail)
			continue
		}
		why := fmt.Sprintf("%s %s (%s)", name, info.Version, info.Detail)
		if len(passed) > 0 {
			why += "; " + strings.Join(passed, "; ")
		}
		return name, why, nil
	}
	if refused != nil && len(passed) == 1 {
		return "", "", refused
	}
	return "", "", fault.New(fault.Unavailable,
		"no backend of this host can run the VM: %s", strings.Join(passed, "; ")).WithCode("backend_unavailable")
}

// sketch returns the Spec of a VM that does not exist yet, as far as backends check it.
func (p *Planner) sketch(req *Request, b *Sources, name string) *backend.Spec {
	r := record.VM{Backend: name, VCPUs: req.Spec.VCPUs, MemoryMiB: req.Spec.MemoryMiB, Name: req.Name}
	if req.Spec.Network.HasTap() {
		r.Tap = "tap" // the real device is created on start
	}
	r.Spec.V = req.Spec
	r.Spec.V.Boot = b.boot
	return p.host.Spec(&r)
}
