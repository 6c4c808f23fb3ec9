package httpapi

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// errTenant is the fault for a tenant in a request that is not the caller's.
var errTenant = fault.New(fault.Denied, "tenant: is not the tenant of your token")

// tagTenant begins tags that stand for a tenant in filters.
const tagTenant = "tenant:"

// rowOf translates a request to create a VM, completes it with defaults, and checks what the
// contract cannot express.
func rowOf(c caller.Caller, b *vmapi.VMSpec) (record.VM, error) {
	r := record.VM{
		Name: b.Name, CPUs: orElse(b.Cpus, 1), Memory: orElse(b.Memory, 512), Disk: value(b.Disk),
		Description: value(b.Description), Autostart: value(b.Autostart), Protected: value(b.Protected),
	}
	r.Labels.V = maps.Clone(map[string]string(value(b.Labels)))
	r.Tags.V = distinct(value(b.Tags))
	r.Spec.V = record.Spec{
		Image: b.Image, Backend: string(orElse(b.Backend, vmapi.VMSpecBackendAuto)), Node: value(b.Node),
		Network: record.Network{Mode: string(vmapi.NetworkModeUser)},
	}
	if n := b.Network; n != nil {
		r.Spec.V.Network = record.Network{
			Mode: string(orElse(n.Mode, vmapi.NetworkModeUser)), Bridge: value(n.Bridge), Forwards: forwardsOf(n),
		}
		if len(r.Spec.V.Network.Forwards) > 0 && r.Spec.V.Network.Mode != string(vmapi.NetworkModeUser) {
			return r, fault.InvalidField("network.forwards", "take the mode user")
		}
	}
	var err error
	if r.Tenant, err = tenantOf(c, value(b.Tenant), r.Labels.V); err != nil {
		return r, err
	}
	if r.Tenant != "" {
		if r.Labels.V == nil {
			r.Labels.V = map[string]string{}
		}
		r.Labels.V[record.LabelTenant] = r.Tenant
	}
	switch {
	case strings.Contains(b.Image, "/") && !c.SeesAll():
		return r, fault.InvalidField("image", "must be the name of an image of the catalog; paths are for admins")
	case strings.ContainsFunc(b.Image, unicode.IsControl):
		return r, fault.InvalidField("image", "must not contain control characters")
	case r.Spec.V.Node != "" && !c.SeesAll():
		return r, fault.New(fault.Denied, "node: only an admin of everything may choose the host")
	}
	if err := checkTags(c, r.Tenant, r.Tags.V); err != nil {
		return r, err
	}
	return r, checkLabels(r.Labels.V)
}

// tenantOf returns the tenant of a new VM: that of the label, of the field, or of the caller.
func tenantOf(c caller.Caller, field string, labels map[string]string) (string, error) {
	name, tenant := "tenant", field
	if label, ok := labels[record.LabelTenant]; ok {
		if name, tenant = "labels."+record.LabelTenant, label; c.SeesAll() && field != "" && field != label {
			return "", fault.InvalidField("tenant", "is another one than that of labels.%s", record.LabelTenant)
		}
	}
	if tenant == "" {
		return c.Tenant, nil
	}
	if !c.SeesAll() && (tenant != c.Tenant || field != "" && field != c.Tenant) {
		return "", errTenant
	}
	return tenant, record.CheckTenant(name, tenant)
}

func checkLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if key == "" || len(key) > 63 || strings.ContainsFunc(key+labels[key], unicode.IsControl) {
			return fault.InvalidField("labels", "keys have 1 to 63 characters, and neither keys nor values have control characters")
		}
	}
	return nil
}

// checkTags refuses tags that stand for another tenant.
func checkTags(c caller.Caller, tenant string, tags []string) error {
	for i, tag := range tags {
		if of, ok := strings.CutPrefix(tag, tagTenant); ok && of != tenant && !c.SeesAll() {
			return fault.New(fault.Denied, "%s: is not the tenant of the VM", fmt.Sprintf("tags.%d", i))
		}
	}
	return nil
}

// checkChange checks a change of a VM. The label tenant stays what it is, also if it is left out.
func checkChange(c caller.Caller, r *record.VM, change *record.Change) error {
	if change.Labels != nil {
		labels := maps.Clone(*change.Labels)
		if given, ok := labels[record.LabelTenant]; ok && given != r.Tenant {
			return fault.InvalidField("labels."+record.LabelTenant, "cannot be changed: a VM stays with its tenant")
		}
		if r.Tenant != "" {
			if labels == nil {
				labels = map[string]string{}
			}
			labels[record.LabelTenant] = r.Tenant
		}
		if err := checkLabels(labels); err != nil {
			return err
		}
		change.Labels = &labels
	}
	if change.Tags != nil {
		tags := distinct(*change.Tags)
		change.Tags = &tags
		return checkTags(c, r.Tenant, tags)
	}
	return nil
}

// startOptions checks the options of a start. What runs on a host beside the VM's own definition is for
// admins of everything.
func startOptions(c caller.Caller, b *vmapi.StartOptions) (o driver.StartOptions, err error) {
	if b == nil {
		return o, nil
	}
	o = driver.StartOptions{
		Kernel: value(b.Linux), Initrd: value(b.Initrd), Firmware: value(b.Firmware), ExtraArgs: value(b.ExtraArgs),
	}
	switch {
	case b.NetworkTap != nil:
		return o, fault.InvalidField("network_tap", "is not supported: the hypervisor daemon makes the taps; use a bridge network")
	case o.Initrd != "" && o.Kernel == "":
		return o, fault.InvalidField("initrd", "takes linux, too")
	}
	if o.Mounts, err = bindMounts(c, value(b.BindMounts)); err != nil {
		return o, err
	}
	for _, f := range []struct {
		name, text string
	}{{"linux", o.Kernel}, {"initrd", o.Initrd}, {"firmware", o.Firmware}, {"extra_args", strings.Join(o.ExtraArgs, "")}} {
		switch {
		case f.text == "":
		case !c.SeesAll():
			return o, fault.InvalidField(f.name, "is for admins without a tenant")
		case strings.ContainsFunc(f.text, unicode.IsControl):
			return o, fault.InvalidField(f.name, "must not contain control characters")
		}
	}
	return o, nil
}

// bindMounts checks folders of the host that a guest is to have.
func bindMounts(c caller.Caller, all []vmapi.BindMount) (out []driver.Mount, err error) {
	used := map[string]bool{}
	for i, b := range all {
		at := func(field, format string, args ...any) error {
			return fault.InvalidField(fmt.Sprintf("bind_mounts.%d.%s", i, field), format, args...)
		}
		switch {
		case !c.SeesAll():
			return nil, fault.InvalidField("bind_mounts", "is for admins without a tenant")
		case !absolute(b.Source):
			return nil, at("source", "must be an absolute path without . and .., and without control characters")
		case !absolute(b.Destination) || b.Destination == "/":
			return nil, at("destination", "must be an absolute path below / without . and .., and without control characters")
		case used[b.Destination]:
			return nil, at("destination", "is that of another one")
		}
		used[b.Destination] = true
		out = append(out, driver.Mount{Source: b.Source, Destination: b.Destination, ReadOnly: value(b.ReadOnly)})
	}
	return out, nil
}

func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsFunc(p, unicode.IsControl)
}

func distinct(tags []string) []string {
	tags = slices.Clone(tags)
	slices.Sort(tags)
	return slices.Compact(tags)
}

// quotaOf translates a quota. Absent limits are nil.
func quotaOf(q *vmapi.Quota, t *record.Tenant) {
	if q == nil {
		return
	}
	for _, l := range []struct {
		from *int
		to   **int64
	}{
		{q.Vms, &t.MaxVMs}, {q.Cpus, &t.MaxCPUs}, {q.Memory, &t.MaxMemory}, {q.Disk, &t.MaxDisk},
		{q.Snapshots, &t.MaxSnapshots},
	} {
		if l.from != nil {
			*l.to = ref(int64(*l.from))
		}
	}
	t.MaxBackups = q.BackupBytes
}

func apiTenant(t record.Tenant, users int) vmapi.Tenant {
	limit := func(n *int64) *int {
		if n == nil {
			return nil
		}
		return ref(int(*n))
	}
	return vmapi.Tenant{
		Name: t.Name, Description: t.Description, Created: t.CreatedAt.Time,
		Quota: vmapi.Quota{
			Vms: limit(t.MaxVMs), Cpus: limit(t.MaxCPUs), Memory: limit(t.MaxMemory), Disk: limit(t.MaxDisk),
			Snapshots: limit(t.MaxSnapshots), BackupBytes: t.MaxBackups,
		},
		Used: vmapi.TenantUse{
			Vms: int(t.Used.VMs), Cpus: int(t.Used.CPUs), Memory: int(t.Used.Memory), Disk: int(t.Used.Disk),
			Snapshots: int(t.Used.Snapshots), BackupBytes: t.Used.BackupBytes, Users: users,
		},
	}
}

func forwardsOf(n *vmapi.Network) (out []record.Forward) {
	for _, f := range value(n.Forwards) {
		out = append(out, record.Forward{
			Protocol: string(orElse(f.Protocol, vmapi.ForwardProtocolTcp)), HostAddress: orElse(f.HostAddress, "127.0.0.1"),
			HostPort: f.HostPort, GuestPort: f.GuestPort,
		})
	}
	return out
}

func apiNetwork(n record.Network) vmapi.Network {
	out := vmapi.Network{Mode: ref(vmapi.NetworkMode(n.Mode)), Bridge: some(n.Bridge)}
	if len(n.Forwards) == 0 {
		return out
	}
	out.Forwards = &[]vmapi.Forward{}
	for _, f := range n.Forwards {
		*out.Forwards = append(*out.Forwards, vmapi.Forward{
			Protocol: ref(vmapi.ForwardProtocol(f.Protocol)), HostAddress: ref(f.HostAddress), HostPort: f.HostPort,
			GuestPort: f.GuestPort,
		})
	}
	return out
}
