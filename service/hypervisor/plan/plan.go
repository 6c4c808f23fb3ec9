package plan

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// Config holds the dependencies and limits of a Planner.
type Config struct {
	Document *configfile.Config
	Policy   *admission.Policy
	Store    *record.Store
	Host     *host.Host
	Catalog  *catalog.Catalog
	Now      func() time.Time
	// VCPUs and MemoryMiB are the capacity for VMs of this host; 0: all that the host has.
	VCPUs, MemoryMiB int
	// Admitted is called for each VM whose row was inserted.
	Admitted func(r *record.VM)
	// Changed is called when VMs may count for more or less than before.
	Changed func()
}

// Planner plans the VMs of this host.
type Planner struct {
	cfg     Config
	doc     *configfile.Config
	policy  *admission.Policy
	store   *record.Store
	host    *host.Host
	catalog *catalog.Catalog
	now     func() time.Time
	probes  probes
	copying turns // by tenant; held while a host file is copied for a new VM

	limiting sync.Mutex // held while limits that are stored are applied
}

// New returns a Planner.
func New(c Config) *Planner {
	return &Planner{
		cfg: c, doc: c.Document, policy: c.Policy, store: c.Store, host: c.Host, catalog: c.Catalog, now: c.Now,
		probes: probes{answers: map[string]probed{}},
	}
}

// Prepare completes and validates a request and finds the VM's sources. The caller must call
// Release on them.
func (p *Planner) Prepare(ctx context.Context, req *Request) (*Sources, error) {
	if err := p.check(ctx, req); err != nil {
		return nil, err
	}
	if !strings.Contains(req.Spec.Image, "/") {
		return p.find(ctx, req)
	}
	// The file is copied before the size of the VM is known. To keep a burst of requests from
	// filling the disk with copies, limits are checked first, and a tenant makes one copy at a
	// time.
	done, err := p.copying.take(ctx, req.Tenant)
	if err != nil {
		return nil, err
	}
	err = p.admitEarly(ctx, req)
	var found *Sources
	if err == nil {
		found, err = p.find(ctx, req)
	}
	if err != nil {
		done()
		return nil, err
	}
	found.turn = done
	return found, nil
}
