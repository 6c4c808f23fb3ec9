package plan

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/accel"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
)

// probeLife is how long a result of Probe is cached.
const probeLife = 15 * time.Second

// probes caches what backends can do.
type probes struct {
	mu      sync.Mutex
	answers map[string]probed
}

type probed struct {
	info backend.Info
	at   time.Time
}

// probe returns what a backend can do on this host, from the cache if possible.
func (p *Planner) probe(ctx context.Context, name string) backend.Info {
	p.probes.mu.Lock()
	answer, known := p.probes.answers[name]
	p.probes.mu.Unlock()
	if known && p.now().Sub(answer.at) < probeLife {
		return answer.info
	}
	if name == backend.Firecracker || name == backend.CloudHypervisor {
		return p.probeKVM(ctx, name)
	}
	// If the caller cancels the request, a failed probe must not be cached for others.
	return p.remember(name, p.host.Backends()[name].Probe(context.WithoutCancel(ctx)))
}

func (p *Planner) remember(name string, info backend.Info) backend.Info {
	p.probes.mu.Lock()
	defer p.probes.mu.Unlock()
	p.probes.answers[name] = probed{info, p.now()}
	return info
}

// probeKVM probes a backend that requires KVM. That the device opens proves nothing, so the result
// of QEMU's test boot decides.
func (p *Planner) probeKVM(ctx context.Context, name string) backend.Info {
	info := p.host.Backends()[name].Probe(context.WithoutCancel(ctx))
	if info.Available && p.host.Backends()[backend.QEMU] != nil {
		if found := p.probe(ctx, backend.QEMU); found.Available && found.Accelerator == string(accel.TCG) {
			info.Available, info.Detail = false, "it takes KVM, which does not work here ("+found.Detail+")"
		}
	}
	return p.remember(name, info)
}

// StandsOn names what runs the VMs, for example "qemu (tcg)".
func (p *Planner) StandsOn(ctx context.Context) string {
	var found []string
	for _, name := range allBackends {
		if p.host.Backends()[name] == nil {
			continue
		}
		if info := p.probe(ctx, name); info.Available {
			if info.Accelerator != "" {
				name += " (" + info.Accelerator + ")"
			}
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return "nothing that runs VMs: apt-get install qemu-system-x86 qemu-utils"
	}
	return strings.Join(found, ", ")
}

// Usable is a readiness check: it fails with not_ready if no backend can run VMs.
func (p *Planner) Usable(ctx context.Context) (string, error) {
	detail := ""
	for name := range p.host.Backends() {
		info := p.probe(ctx, name)
		if info.Available {
			return p.StandsOn(ctx), nil
		}
		detail += "; " + name + ": " + info.Detail
	}
	return "", fault.New(fault.Unavailable, "no backend can run VMs%s", detail).WithCode("not_ready")
}

// Capacity is what a host has, and what is free.
type Capacity struct {
	VCPUs, MemoryMiB         int
	FreeVCPUs, FreeMemoryMiB int
	VMs                      int
	TemplateBytes            int64 // on disk
	Backends                 []Probed
}

// Probed is what a backend can do.
type Probed struct {
	Name string
	backend.Info
}

// Capacity returns what this host has, and what is free.
func (p *Planner) Capacity(ctx context.Context) (Capacity, error) {
	given, err := p.store.Given(ctx)
	if err != nil {
		return Capacity{}, err
	}
	c := Capacity{VCPUs: runtime.NumCPU(), MemoryMiB: host.Memory(), VMs: given.VMs}
	if c.TemplateBytes, err = p.store.TemplateBytes(ctx); err != nil {
		return c, err
	}
	if p.cfg.VCPUs > 0 {
		c.VCPUs = p.cfg.VCPUs
	}
	if p.cfg.MemoryMiB > 0 {
		c.MemoryMiB = p.cfg.MemoryMiB
	}
	c.FreeVCPUs, c.FreeMemoryMiB = c.VCPUs-given.VCPUs, c.MemoryMiB-given.MemoryMiB
	for _, name := range allBackends {
		if p.host.Backends()[name] != nil {
			c.Backends = append(c.Backends, Probed{name, p.probe(ctx, name)})
		}
	}
	return c, nil
}

// allBackends lists the backends in display order.
var allBackends = []string{backend.QEMU, backend.CloudHypervisor, backend.Firecracker, backend.Sandbox}
