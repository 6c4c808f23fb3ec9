package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Policy are the limits of a host. Zero values are no limits.
type Policy struct {
	MaxVCPUs         int
	MaxMemoryMiB     int
	MaxDiskGiB       int
	MaxTTL           time.Duration // with one, every VM must have a time to live
	AllowedBackends  []string      // empty: all
	AllowedImageDirs []string      // empty: the catalog only, and for admins everywhere
	OwnDirs          []string      // the daemon's own, of which nothing is opened for anybody
	Tenants          []Tenant
}

// Tenant are the limits of what one tenant has in all.
type Tenant struct {
	Name         string
	MaxVCPUs     int
	MaxMemoryMiB int
	MaxVMs       int
}

// Request is what a VM would take.
type Request struct {
	Tenant    string
	Backend   string // the one that would run it, never auto
	VCPUs     int
	MemoryMiB int
	DiskGiB   int
	TTL       time.Duration // 0: it stays
}

// Usage is what a tenant has already, VMs that are being made included.
type Usage struct {
	VMs, VCPUs, MemoryMiB int
}

// codeLimit is the code of every refusal because of a limit.
const codeLimit = "policy_limit"

// refuse is why a VM may not be made: a fault of kind Invalid that names the limit, as it
// is called in the configuration.
func refuse(limit, format string, args ...any) error {
	return fault.New(
		fault.Invalid, "%s; the limit is %s", fmt.Sprintf(format, args...), limit,
	).WithCode(codeLimit).WithLimit(limit)
}

// RefuseField refuses because of a limit that one field of a request exceeds.
func RefuseField(limit, field, format string, args ...any) error {
	return fault.InvalidField(field, format, args...).WithCode(codeLimit).WithLimit(limit)
}

// Check says whether a VM may be made by a tenant that has usage; the error names the limit.
func (p *Policy) Check(r Request, usage Usage) error {
	for _, one := range []struct {
		limit, what string
		asked, most int
	}{
		{"policy.max_vcpus", "virtual processors", r.VCPUs, p.MaxVCPUs},
		{"policy.max_memory_mib", "MiB of memory", r.MemoryMiB, p.MaxMemoryMiB},
		{"policy.max_disk_gib", "GiB of disk", r.DiskGiB, p.MaxDiskGiB},
	} {
		if one.most > 0 && one.asked > one.most {
			return refuse(one.limit, "the VM asks for %d %s, and a VM may have %d", one.asked, one.what, one.most)
		}
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
	for _, one := range []struct {
		limit, what      string
		has, asked, most int
	}{
		{"max_vms_total", "VMs", usage.VMs, 1, t.MaxVMs},
		{"max_vcpus_total", "virtual processors", usage.VCPUs, r.VCPUs, t.MaxVCPUs},
		{"max_memory_mib_total", "MiB of memory", usage.MemoryMiB, r.MemoryMiB, t.MaxMemoryMiB},
	} {
		if one.most > 0 && one.asked > one.most-one.has {
			return refuse(
				fmt.Sprintf("policy.tenants[%s].%s", t.Name, one.limit),
				"the tenant %s has %d %s and asks for %d more; it may have %d in all", t.Name, one.has, one.what,
				one.asked, one.most,
			)
		}
	}
	return nil
}
