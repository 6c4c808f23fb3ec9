package hypervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/catalog"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/seed"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// Request asks for a VM.
type Request struct {
	Name, Tenant, Backend string
	Spec                  Spec
	MAC                   string // empty: one is made
	Secret                string // the guest agent's; empty: one is made
	Labels                map[string]string
	Autostart             bool
	Start                 bool // as soon as it is made
}

// gib is a GiB in bytes.
const gib = 1 << 30

// Create makes a VM: it is stopped when Create returns, or starting if that is asked.
func (s *Service) Create(ctx context.Context, req Request) (Record, error) {
	if err := s.check(ctx, &req); err != nil {
		return Record{}, err
	}
	content, err := s.findBase(ctx, &req)
	if err != nil {
		return Record{}, err
	}
	defer content.release()
	r, err := s.admit(ctx, &req, content, "vm.create")
	if err != nil {
		return r, err
	}
	// From here on it is finished, or undone, whether or not the caller waits.
	ctx = context.WithoutCancel(ctx)
	m := s.machines.get(r.ID)
	if err := m.lock(ctx); err != nil {
		return r, err
	}
	defer m.unlock()
	if err := s.make(ctx, &r, &req, content); err != nil {
		return r, s.undo(ctx, r, err)
	}
	if r, err = s.move(ctx, r.ID, vm.Made, "", "", nil); err != nil {
		return r, err
	}
	if !req.Start {
		return r, nil
	}
	started, err := s.move(ctx, r.ID, vm.Start, "vm.start", "", nil)
	if err != nil {
		return r, err
	}
	s.watchers.Go(func() {
		if err := m.lock(ctx); err != nil {
			return
		}
		defer m.unlock()
		if _, err := s.bringUp(ctx, m, started); err != nil {
			s.log.Warn("a VM did not start", "vm", started.ID, "error", err)
		}
	})
	return started, nil
}

// undo removes what there is of a VM that could not be made.
func (s *Service) undo(ctx context.Context, r Record, cause error) error {
	if _, err := s.move(ctx, r.ID, vm.Crashed, "", fault.From(cause).Message, nil); err != nil {
		return errors.Join(cause, err)
	}
	if err := s.erase(ctx, r); err != nil {
		s.log.Error("a VM that could not be made is not removed; that is tried again at the next start", "vm", r.ID, "error", err)
	}
	return cause
}

// check completes a request, and refuses what makes no sense whatever the host has.
func (s *Service) check(ctx context.Context, req *Request) error {
	c, spec := callerFrom(ctx), &req.Spec
	if c.Tenant != "" {
		req.Tenant = c.Tenant // the credentials decide
	}
	for _, known := range []struct{ field, value string }{{"kernel", spec.Kernel}, {"initrd", spec.Initrd}} {
		if known.value != "" && !filepath.IsAbs(known.value) {
			return fault.InvalidField(known.field, "must be an absolute path")
		}
	}
	switch {
	case strings.ContainsFunc(req.Tenant, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fault.InvalidField("tenant", "must have printable characters without spaces")
	case spec.Initrd != "" && spec.Kernel == "":
		return fault.InvalidField("initrd", "needs a kernel")
	case spec.CloudInit.Hostname != "" && !seed.ValidHostname(spec.CloudInit.Hostname):
		return fault.InvalidField("cloud_init.hostname", "is no host name (RFC 1123)")
	case spec.Storage != storage.Dir && s.pools[spec.Storage] == nil:
		return fault.InvalidField("storage", "%s is not configured on this host; see storage in the daemon's document", spec.Storage)
	}
	for i, key := range spec.CloudInit.SSHAuthorizedKeys {
		if strings.ContainsAny(key, "\n\r") {
			return fault.InvalidField(fmt.Sprintf("cloud_init.ssh_authorized_keys.%d", i), "must be one line")
		}
	}
	if req.Secret != "" {
		if err := wire.ValidSecret(req.Secret); err != nil {
			return fault.InvalidField("agent.token", "%v", err)
		}
	}
	return s.checkNetwork(req)
}

func (s *Service) checkNetwork(req *Request) error {
	n := &req.Spec.Network
	if req.MAC != "" {
		mac, err := net.ParseMAC(req.MAC)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 || req.MAC == "00:00:00:00:00:00" {
			return fault.InvalidField("network.mac", "must be the address of one interface, such as 52:54:00:12:34:56")
		}
	}
	if n.IP != "" {
		if addr, err := netip.ParseAddr(n.IP); err != nil || !addr.Is4() {
			return fault.InvalidField("network.ip", "must be an IPv4 address")
		}
		if n.Mode != networkBridge && n.Mode != networkTap {
			return fault.InvalidField("network.ip", "takes the mode bridge or tap")
		}
	}
	if n.Bridge == "" {
		return nil
	}
	switch {
	case n.Mode != networkBridge && n.Mode != networkTap:
		return fault.InvalidField("network.bridge", "takes the mode bridge or tap")
	case !configfile.ValidDevice(n.Bridge):
		return fault.InvalidField("network.bridge", "is no name of a device")
	case n.Bridge != s.doc.Network.Bridge && !slices.Contains(s.doc.Network.Bridges, n.Bridge):
		return fault.InvalidField("network.bridge", "VMs may not join %s; see network.allowed_bridges in the daemon's document", n.Bridge)
	}
	return nil
}

// admit holds a request against the policy and, if it passes, makes the VM's row: under
// one lock and in one transaction, so that two requests cannot pass a cap together.
func (s *Service) admit(ctx context.Context, req *Request, content *base, action string) (Record, error) {
	if mode := &req.Spec.Network.Mode; *mode == "" {
		*mode = networkUser
		if content.boot.RootFS != "" {
			*mode = networkNone // a sandbox has no other
		}
	}
	name, why, err := s.choose(ctx, req, content)
	if err != nil {
		return Record{}, err
	}
	spec := &req.Spec
	spec.Boot = content.boot
	disk := spec.DiskGiB
	if disk == 0 && content.disk != nil {
		disk = int((content.disk.Size + gib - 1) / gib)
	}
	if content.disk != nil && int64(spec.DiskGiB)*gib < content.disk.Size && spec.DiskGiB != 0 {
		return Record{}, fault.InvalidField("disk_gib", "is smaller than the image, which has %d GiB", (content.disk.Size+gib-1)/gib)
	}
	now := s.now()
	r := Record{
		ID: newID(), Name: req.Name, Tenant: req.Tenant, Backend: name, State: vm.Creating, Base: content.sha256, VCPUs: spec.VCPUs, MemoryMiB: spec.MemoryMiB,
		MAC: req.MAC, Autostart: req.Autostart, Generation: 1, CreatedAt: db.At(now), ExpiresAt: after(now, time.Duration(spec.TTLSeconds)*time.Second),
	}
	if spec.Network.Mode == networkNone {
		r.MAC = ""
	} else if r.MAC == "" {
		r.MAC = newMAC()
	}
	r.Spec.V, r.Labels.V, r.IPs.V = *spec, req.Labels, []string{}
	if r.Labels.V == nil {
		r.Labels.V = map[string]string{}
	}
	if spec.Agent {
		if req.Secret == "" {
			req.Secret = auth.NewToken("")
		}
		r.Secret = s.secrets.Seal([]byte(req.Secret), r.ID)
	}
	s.admission.Lock()
	defer s.admission.Unlock()
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		usage, err := usageOf(ctx, tx, r.Tenant)
		if err != nil {
			return err
		}
		asked := admission.Request{Tenant: r.Tenant, Backend: name, VCPUs: r.VCPUs, MemoryMiB: r.MemoryMiB, DiskGiB: disk, TTL: time.Duration(spec.TTLSeconds) * time.Second}
		if err := s.policy.Check(asked, usage); err != nil {
			return err
		}
		// The lowest number that no VM has.
		if err := tx.Get(ctx, &r.Slot, `SELECT MIN(s.slot) FROM (SELECT 0 AS slot UNION ALL SELECT slot + 1 FROM vms) s WHERE NOT EXISTS (SELECT 1 FROM vms v WHERE v.slot = s.slot)`); err != nil {
			return err
		}
		r.Events = 0
		if err := s.tell(ctx, tx, &r, eventBackend, why); err != nil {
			return err
		}
		if err := tx.Insert(ctx, "vms", r); db.IsUnique(err) {
			return fault.New(fault.Conflict, "there is a VM named %s already", r.Name).WithCode("name_taken")
		} else if err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: action, Target: r.ID, Tenant: r.Tenant, Message: r.Name})
	})
	if err == nil {
		s.nudgeFleet()
	}
	return r, err
}

func usageOf(ctx context.Context, q db.Querier, tenant string) (admission.Usage, error) {
	var u struct {
		VMs       int `db:"vms"`
		VCPUs     int `db:"vcpus"`
		MemoryMiB int `db:"memory_mib"`
	}
	err := q.Get(ctx, &u, "SELECT COUNT(*) AS vms, COALESCE(SUM(vcpus), 0) AS vcpus, COALESCE(SUM(memory_mib), 0) AS memory_mib FROM vms WHERE tenant = ?", tenant)
	return admission.Usage{VMs: u.VMs, VCPUs: u.VCPUs, MemoryMiB: u.MemoryMiB}, err
}

// newMAC makes an address out of QEMU's range, which is locally administered.
func newMAC() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // it never fails
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", b[0], b[1], b[2])
}

// base is what a VM is made of.
type base struct {
	sha256 string
	disk   *storage.Base // nil: an empty one, or none
	boot   Boot
	// copies are files of the host that become the VM's own.
	copies []copied
	done   func()
}

// copied is an open file, which was checked, and its name in the VM's folder.
type copied struct {
	file *os.File
	name string
}

// release gives back what findBase holds.
func (b *base) release() {
	for _, c := range b.copies {
		_ = c.file.Close() // it was only read
	}
	if b.done != nil {
		b.done()
	}
}

// findBase finds what a request names: an image of the catalog, or files of the host.
func (s *Service) findBase(ctx context.Context, req *Request) (_ *base, err error) {
	b, spec := &base{}, &req.Spec
	defer func() {
		if err != nil {
			b.release()
		}
	}()
	b.done = s.hold()
	if spec.Image != "" {
		content, args, err := s.contentOf(ctx, spec.Image)
		if err != nil {
			return nil, err
		}
		b.sha256 = content.SHA256
		switch content.Kind {
		case catalog.Disk:
			b.disk = &storage.Base{Path: content.DiskPath(), Format: "qcow2", Size: content.VirtualSize}
		case catalog.Kernel:
			b.boot = Boot{Kernel: content.KernelPath(), Initrd: content.InitrdPath(), KernelArgs: args}
		case catalog.RootFS:
			b.boot.RootFS = content.RootFSPath()
		}
	}
	for _, file := range []struct {
		field, path, name string
		into              *string
	}{{"kernel", spec.Kernel, "kernel", &b.boot.Kernel}, {"initrd", spec.Initrd, "initrd", &b.boot.Initrd}} {
		if file.path == "" {
			continue
		}
		f, err := s.policy.OpenImage(file.path)
		if err != nil {
			return nil, renamed(err, file.field)
		}
		b.copies = append(b.copies, copied{f, file.name})
		*file.into = file.name // in the VM's folder, which has no name yet
	}
	if spec.KernelArgs != "" {
		b.boot.KernelArgs = spec.KernelArgs
	}
	b.boot.Disk = b.boot.RootFS == "" && (b.disk != nil || spec.DiskGiB > 0 || b.boot.Kernel == "")
	return b, s.findFirmware(b, spec.Firmware)
}

// renamed is a fault about an image as one about another field.
func renamed(err error, field string) error {
	f := fault.From(err)
	if f.Field != "image" {
		return err
	}
	return fault.InvalidField(field, "%s", strings.TrimPrefix(f.Message, "image: "))
}

// contentOf is what an image's name or path stands for, and the arguments of its kernel.
func (s *Service) contentOf(ctx context.Context, name string) (catalog.Content, string, error) {
	if !strings.Contains(name, "/") {
		i, err := s.image(ctx, s.db, name)
		if fault.Is(err, fault.NotFound) {
			return catalog.Content{}, "", fault.InvalidField("image", "there is no image %q in the catalog; it may also be an absolute path", name)
		}
		if err != nil {
			return catalog.Content{}, "", err
		}
		if err := s.usable(&i); err != nil {
			return catalog.Content{}, "", err
		}
		content, err := s.contents.Get(i.SHA256)
		return content, i.KernelArgs, err
	}
	if s.doc.Images.RequireSigned {
		return catalog.Content{}, "", fault.InvalidField("image", "must be a signed image of the catalog, since images.require_signed is set")
	}
	content, err := s.takePath(ctx, name)
	return content, "", err
}

// make gives a VM its folder, disk and seed.
func (s *Service) make(ctx context.Context, r *Record, req *Request, b *base) error {
	folder := s.folder(r.ID)
	if err := os.Mkdir(folder, 0o711); err != nil { //nolint:gosec // its process, under another uid, passes through
		return err
	}
	uid, gid := s.owner(r)
	for _, c := range b.copies {
		path := filepath.Join(folder, c.name)
		if _, err := catalog.Keep(ctx, c.file, path, 2<<30); err != nil {
			return err
		}
		if err := chown(path, uid, gid); err != nil {
			return err
		}
	}
	if r.hasDisk() {
		if err := s.pool(r).Create(ctx, s.volume(r), b.disk); err != nil {
			return err
		}
	}
	return s.writeSeed(r, req.Secret)
}

// hasDisk says whether a VM has a disk of its own: sandboxes have none, and what boots a
// kernel only if there is an image or it was asked for.
func (r *Record) hasDisk() bool { return r.Spec.V.Boot.Disk }

func chown(path string, uid, gid int) error {
	if uid == 0 {
		return nil
	}
	return os.Lchown(path, uid, gid)
}

// The files in a VM's folder.
const (
	seedFile   = "seed.iso"
	secretFile = "secret"
)

// writeSeed makes the disk from which the guest learns who it is. A sandbox gets the
// secret as a file.
func (s *Service) writeSeed(r *Record, secret string) error {
	uid, gid := s.owner(r)
	if r.Backend == backend.Sandbox {
		if secret == "" {
			return nil
		}
		path := filepath.Join(s.folder(r.ID), secretFile)
		return errors.Join(os.WriteFile(path, []byte(secret+"\n"), 0o600), chown(path, uid, gid))
	}
	ci := &r.Spec.V.CloudInit
	content := seed.Content{InstanceID: r.ID, Hostname: ci.Hostname, UserData: ci.UserData, SSHAuthorizedKeys: ci.SSHAuthorizedKeys, Secret: secret}
	if content.Hostname == "" {
		content.Hostname = strings.ReplaceAll(r.Name, "_", "-")
	}
	if secret != "" && r.Spec.V.Boot.Kernel == "" {
		content.Agent = s.agentProgram() // a guest with a disk has none of its own, perhaps
	}
	path := filepath.Join(s.folder(r.ID), seedFile)
	if err := seed.Write(path, content); err != nil {
		return err
	}
	return chown(path, uid, gid)
}

// erase removes all that a VM in state deleting has, and at last its row. It can be
// repeated.
func (s *Service) erase(ctx context.Context, r Record) error {
	if err := s.clean(ctx, &r); err != nil {
		return err
	}
	if r.hasDisk() {
		if err := s.pool(&r).Remove(ctx, s.volume(&r)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(s.folder(r.ID)); err != nil {
		return err
	}
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		for _, statement := range []string{"DELETE FROM events WHERE vm_id = ?", "DELETE FROM snapshots WHERE vm_id = ?", "UPDATE backups SET bitmap = '' WHERE vm_id = ?", "DELETE FROM vms WHERE id = ?"} {
			if _, err := tx.Exec(ctx, statement, r.ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.machines.get(r.ID).ring()
	s.machines.forget(r.ID)
	s.nudgeFleet()
	if r.DiskBase == "" {
		return nil
	}
	return s.sweepBases(ctx)
}
