package hypervisor

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/seed"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
	"github.com/mainstay-infra/mainstay/service/hypervisor/vm"
)

// check completes a request, and refuses what makes no sense whatever the host has.
func (s *Service) check(ctx context.Context, req *Request) error {
	c, spec := caller.From(ctx), &req.Spec
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
	case spec.Storage != storage.Dir && !s.host.HasStorage(spec.Storage):
		return fault.InvalidField("storage", "%s is not configured on this host; see storage in the daemon's document", spec.Storage)
	}
	if strings.ContainsFunc(spec.KernelArgs, unicode.IsControl) {
		return fault.InvalidField("kernel_args", "must not contain control characters")
	}
	if strings.ContainsRune(spec.CloudInit.UserData, 0) {
		return fault.InvalidField("cloud_init.user_data", "must not contain NUL")
	}
	for key, value := range req.Labels {
		if strings.ContainsFunc(key+value, unicode.IsControl) {
			return fault.InvalidField("labels", "must not contain control characters")
		}
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
		if n.Mode != record.NetworkBridge && n.Mode != record.NetworkTap {
			return fault.InvalidField("network.ip", "takes the mode bridge or tap")
		}
	}
	if n.IP != "" && n.Mode == record.NetworkBridge && (n.Bridge == "" || n.Bridge == s.doc.Network.Bridge) {
		if addr, err := netip.ParseAddr(n.IP); err == nil && !s.host.UsableAddress(addr) {
			return fault.InvalidField("network.ip", "must be an address in the network %s that a guest can use", s.doc.Network.Subnet)
		}
	}
	if n.Bridge == "" {
		return nil
	}
	switch {
	case n.Mode != record.NetworkBridge && n.Mode != record.NetworkTap:
		return fault.InvalidField("network.bridge", "takes the mode bridge or tap")
	case !configfile.ValidDevice(n.Bridge):
		return fault.InvalidField("network.bridge", "is no name of a device")
	case n.Bridge != s.doc.Network.Bridge && !slices.Contains(s.doc.Network.Bridges, n.Bridge):
		return fault.InvalidField("network.bridge", "VMs may not join %s; see network.allowed_bridges in the daemon's document", n.Bridge)
	}
	return nil
}

// admitEarly refuses a request that exceeds a limit whatever its image is. It reserves nothing; admit
// checks again.
func (s *Service) admitEarly(ctx context.Context, req *Request) error {
	usage, err := s.store.Usage(ctx, req.Tenant)
	if err != nil {
		return err
	}
	policy, spec := s.policy, &req.Spec
	policy.AllowedBackends = nil // it is not chosen yet
	return policy.Check(admission.Request{Tenant: req.Tenant, VCPUs: spec.VCPUs, MemoryMiB: spec.MemoryMiB, DiskGiB: spec.DiskGiB, TTL: time.Duration(spec.TTLSeconds) * time.Second}, usage)
}

// admit holds a request against the policy and, if it passes, makes the VM's row: under
// one lock and in one transaction, so that two requests cannot pass a cap together.
func (s *Service) admit(ctx context.Context, req *Request, content *base, action string) (record.VM, error) {
	if mode := &req.Spec.Network.Mode; *mode == "" {
		*mode = record.NetworkUser
		if content.boot.RootFS != "" {
			*mode = record.NetworkNone // a sandbox has no other
		}
	}
	name, why, err := s.choose(ctx, req, content)
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
		return record.VM{}, fault.InvalidField("disk_gib", "is smaller than the image, which has %d GiB", (content.disk.Size+record.GiB-1)/record.GiB)
	}
	now := s.now()
	r := record.VM{
		ID: record.NewID(), Name: req.Name, Tenant: req.Tenant, Backend: name, State: vm.Creating, Base: content.sha256,
		VCPUs: spec.VCPUs, MemoryMiB: spec.MemoryMiB, MAC: req.MAC, Autostart: req.Autostart, Generation: 1, CreatedAt: db.At(now),
	}
	if spec.TTLSeconds > 0 {
		r.ExpiresAt = db.At(now.Add(time.Duration(spec.TTLSeconds) * time.Second))
	}
	if spec.Network.Mode == record.NetworkNone {
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
		r.Secret = s.store.Seal(r.ID, req.Secret)
	}
	err = s.store.Admit(ctx, record.Admission{VM: &r, DiskGiB: disk, Why: why, Action: action, Message: record.WithFiles(r.Name, content.files...)})
	if err == nil {
		s.nudgeFleet()
	}
	if err == nil && !r.ExpiresAt.IsZero() {
		select {
		case s.timed <- struct{}{}:
		default: // keepTime looks anyway
		}
	}
	return r, err
}

// newMAC makes an address out of QEMU's range, which is locally administered.
func newMAC() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // it never fails
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", b[0], b[1], b[2])
}
