package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/quota"
)

// Policy holds the limits of a host. Zero values mean no limit.
type Policy struct {
	MaxVCPUs         int
	MaxMemoryMiB     int
	MaxDiskGiB       int
	MaxTTL           time.Duration // with one, every VM must have a time to live
	AllowedBackends  []string      // empty: all
	AllowedImageDirs []string      // empty: the catalog only, and for admins everywhere
	AllowedForwards  []PortRange   // ports of the host that tenants may lead into their guests
	AllowedShareDirs []string      // empty: none
	OwnDirs          []string      // the daemon's own, of which nothing is opened for anybody
	Tenants          []Tenant
}

// Tenant holds the total limits of one tenant.
type Tenant struct {
	Name         string
	MaxVCPUs     int
	MaxMemoryMiB int
	MaxVMs       int
}

// Request describes the resources of a new VM.
type Request struct {
	Tenant    string
	Backend   string // the one that would run it, never auto
	VCPUs     int
	MemoryMiB int
	DiskGiB   int
	TTL       time.Duration // 0: it stays
}

// Usage is a tenant's current usage, including VMs that are being created.
type Usage struct {
	VMs, VCPUs, MemoryMiB int
}

// codeLimit is the fault code for exceeded limits.
const codeLimit = "policy_limit"

// refuse returns the fault for an exceeded limit: of kind Invalid, naming the limit as in the
// configuration.
func refuse(limit, format string, args ...any) error {
	return fault.New(
		fault.Invalid, "%s; the limit is %s", fmt.Sprintf(format, args...), limit,
	).WithCode(codeLimit).WithLimit(limit)
}

// RefuseField returns the fault for a field of a request that exceeds a limit.
func RefuseField(limit, field, format string, args ...any) error {
	return fault.InvalidField(field, format, args...).WithCode(codeLimit).WithLimit(limit)
}

// Check checks a new VM against the policy and its tenant's usage. The error names the limit.
func (p *Policy) Check(r Request, usage Usage) error {
	if d := quota.Exceeded(
		demand("policy.max_vcpus", processors, 0, r.VCPUs, p.MaxVCPUs),
		demand("policy.max_memory_mib", memory, 0, r.MemoryMiB, p.MaxMemoryMiB),
		demand("policy.max_disk_gib", "GiB of disk", 0, r.DiskGiB, p.MaxDiskGiB),
	); d != nil {
		return refuse(d.Name, "the VM asks for %d %s, and a VM may have %d", d.Asked, d.Unit, d.Most)
	}
	switch {
	case p.MaxTTL > 0 && r.TTL == 0:
		return refuse(
			"policy.max_ttl_seconds", "the VM has no ttl_seconds, and must have at most %d", int(p.MaxTTL.Seconds()),
		)
	case p.MaxTTL > 0 && r.TTL > p.MaxTTL:
		return refuse(
			"policy.max_ttl_seconds", "the VM asks for %d ttl_seconds, and may have %d", int(r.TTL.Seconds()),
			int(p.MaxTTL.Seconds()),
		)
	case len(p.AllowedBackends) > 0 && !slices.Contains(p.AllowedBackends, r.Backend):
		return refuse(
			"policy.allowed_backends", "the backend %s is not among those allowed: %s", r.Backend,
			strings.Join(p.AllowedBackends, ", "),
		)
	}
	return p.checkTenant(r, usage)
}

func (p *Policy) checkTenant(r Request, usage Usage) error {
	i := slices.IndexFunc(p.Tenants, func(t Tenant) bool { return t.Name == r.Tenant })
	if i < 0 {
		return nil
	}
	t := &p.Tenants[i]
	if d := quota.Exceeded(
		demand(t.limit("max_vms_total"), "VMs", usage.VMs, 1, t.MaxVMs),
		demand(t.limit("max_vcpus_total"), processors, usage.VCPUs, r.VCPUs, t.MaxVCPUs),
		demand(t.limit("max_memory_mib_total"), memory, usage.MemoryMiB, r.MemoryMiB, t.MaxMemoryMiB),
	); d != nil {
		return d.Refusal("the tenant " + t.Name).WithCode(codeLimit)
	}
	return nil
}

// Size is what a VM counts for.
type Size struct {
	VCPUs, MemoryMiB int
}

// CheckGrowth checks a VM that changes from one size to another against the policy and its tenant's
// usage, which includes the VM as it was. What does not grow is not checked: limits may be lower by now.
func (p *Policy) CheckGrowth(tenant string, usage Usage, from, to Size) error {
	most := func(grows bool, limit int) int {
		if !grows {
			return 0 // no limit
		}
		return limit
	}
	vcpus, mib := to.VCPUs > from.VCPUs, to.MemoryMiB > from.MemoryMiB
	if d := quota.Exceeded(
		demand("policy.max_vcpus", processors, 0, to.VCPUs, most(vcpus, p.MaxVCPUs)),
		demand("policy.max_memory_mib", memory, 0, to.MemoryMiB, most(mib, p.MaxMemoryMiB)),
	); d != nil {
		return refuse(d.Name, "the VM asks for %d %s, and a VM may have %d", d.Asked, d.Unit, d.Most)
	}
	i := slices.IndexFunc(p.Tenants, func(t Tenant) bool { return t.Name == tenant })
	if i < 0 {
		return nil
	}
	t := &p.Tenants[i]
	if d := quota.Exceeded(
		demand(t.limit("max_vcpus_total"), processors, usage.VCPUs, to.VCPUs-from.VCPUs, most(vcpus, t.MaxVCPUs)),
		demand(
			t.limit("max_memory_mib_total"), memory, usage.MemoryMiB, to.MemoryMiB-from.MemoryMiB, most(mib, t.MaxMemoryMiB),
		),
	); d != nil {
		return d.Refusal("the tenant " + t.Name).WithCode(codeLimit)
	}
	return nil
}

// limit returns the name of one of the tenant's limits, as in the configuration.
func (t *Tenant) limit(name string) string { return fmt.Sprintf("policy.tenants[%s].%s", t.Name, name) }

// What is counted, in words.
const (
	processors = "virtual processors"
	memory     = "MiB of memory"
)

func demand(limit, unit string, has, asked, most int) quota.Demand {
	return quota.Demand{
		Limit: quota.Limit{Name: limit, Unit: unit, Has: int64(has), Most: int64(most)}, Asked: int64(asked),
	}
}
