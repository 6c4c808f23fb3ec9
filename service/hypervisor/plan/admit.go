package plan

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// admitEarly rejects a request that exceeds a limit regardless of its image. It reserves nothing;
// Admit checks again.
func (p *Planner) admitEarly(ctx context.Context, req *Request) error {
	usage, err := p.store.Usage(ctx, req.Tenant)
	if err != nil {
		return err
	}
	policy, spec := *p.policy, &req.Spec
	policy.AllowedBackends = nil // the backend is not chosen yet
	return policy.Check(admission.Request{
		Tenant: req.Tenant, VCPUs: spec.VCPUs, MemoryMiB: spec.MemoryMiB, DiskGiB: spec.DiskGiB,
		TTL: time.Duration(spec.TTLSeconds) * time.Second,
	}, usage)
}

// Admit checks a request against the policy and inserts the VM's row, under one lock and in one
// transaction, so that two requests cannot pass a cap together.
func (p *Planner) Admit(ctx context.Context, req *Request, content *Sources, action string) (record.VM, error) {
	if mode := &req.Spec.Network.Mode; *mode == "" {
		*mode = record.NetworkUser
		if content.boot.RootFS != "" {
			*mode = record.NetworkNone // a sandbox supports no other
		}
	}
	name, why, err := p.choose(ctx, req, content)
	if err != nil {
		return record.VM{}, err
	}
	spec := &req.Spec
	spec.Boot = content.boot
	disk := spec.DiskGiB
	if disk == 0 && content.disk != nil {
		disk = int((content.disk.Size + record.GiB - 1) / record.GiB)
	}
	if content.disk != nil && int64(spec.DiskGiB)*record.GiB < content.disk.Size && spec.DiskGiB != 0 {
		return record.VM{}, fault.InvalidField("disk_gib", "is smaller than the image, which has %d GiB",
			(content.disk.Size+record.GiB-1)/record.GiB)
	}
	now := p.now()
	r := record.VM{
		ID: record.NewID(), Name: req.Name, Tenant: req.Tenant, Backend: name, State: vm.Creating, Base: content.sha256,
		VCPUs: spec.VCPUs, MemoryMiB: spec.MemoryMiB, MAC: req.MAC, Autostart: req.Autostart, Generation: 1,
		CreatedAt: db.At(now),
	}
	if spec.TTLSeconds != 0 {
		r.ExpiresAt = db.At(now.Add(time.Duration(spec.TTLSeconds) * time.Second))
	}
	if spec.Network.Mode == record.NetworkNone {
		r.MAC = ""
	} else if r.MAC == "" {
		r.MAC = newMAC()
	}
	if r.Instant, err = p.instant(ctx, req, name); err != nil {
		return r, err
	}
	r.Spec.V, r.Labels.V, r.IPs.V = *spec, req.Labels, []string{}
	if r.Labels.V == nil {
		r.Labels.V = map[string]string{}
	}
	if spec.Agent {
		if req.Secret == "" {
			req.Secret = auth.NewToken("")
		}
		r.Secret = p.store.Seal(r.ID, req.Secret)
	}
	message := record.WithFiles(r.Name, content.files...)
	a := record.Admission{VM: &r, DiskGiB: disk, Why: why, Action: action, Message: message}
	if from := req.Arrival; from != nil {
		a.Why, a.Arrival = fmt.Sprintf("%s; it comes from the host %s", why, from.Node), &from.Arrival
		r.Disks.V = from.Disks
		a.DiskGiB = int((from.DiskBytes+record.GiB-1)/record.GiB) + r.DataGiB()
		p.arrives(&r, from)
	}
	if err := p.store.Admit(ctx, a); err != nil {
		return r, err
	}
	p.cfg.Admitted(&r)
	return r, nil
}

// instant returns which templates the first start of a VM may use; see record.VM.
func (p *Planner) instant(ctx context.Context, req *Request, backendName string) (string, error) {
	if req.Template != "" && !req.Instant {
		return "", fault.InvalidField("template", "cannot be given with instant: false")
	}
	if req.Template != "" {
		t, err := p.store.Template(ctx, req.Template)
		if fault.Is(err, fault.NotFound) {
			return "", fault.InvalidField("template", "there is no template %q", req.Template)
		}
		return t.ID, err
	}
	if req.Instant && backendName == backend.QEMU {
		return record.InstantAny, nil
	}
	return "", nil
}

// arrives completes the row of a VM that comes from another host.
func (p *Planner) arrives(r *record.VM, from *Arrival) {
	r.ID, r.DiskBase, r.CreatedAt, r.Generation = from.VM, from.DiskBase, db.At(from.CreatedAt), from.Generation+1
	r.ExpiresAt, r.Secret = db.Time{}, ""
	if !from.ExpiresAt.IsZero() {
		r.ExpiresAt = db.At(from.ExpiresAt)
	}
	if from.Secrets != "" {
		r.Secret = p.store.Seal(r.ID, from.Secrets)
	}
	for i := range from.Snapshots {
		if s := &from.Snapshots[i]; s.Secret != "" {
			s.Secret = p.store.Seal(r.ID, s.Secret)
		}
	}
}

// Arrive checks a VM that comes from another host like a new one, and inserts its row. Its boot files are
// named relative to its folder, or are this host's own; content is the SHA-256 of the catalog's content that
// it stands on, or empty.
func (p *Planner) Arrive(ctx context.Context, req *Request, content string, boot record.Boot) (record.VM, error) {
	if err := p.check(ctx, req); err != nil {
		return record.VM{}, err
	}
	return p.Admit(ctx, req, Again(content, boot), "migration.offer")
}

// newMAC returns a random address with QEMU's prefix, which is locally administered.
func newMAC() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // it never fails
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", b[0], b[1], b[2])
}
