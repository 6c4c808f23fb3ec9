package plan

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/seed"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// Request is a request for a VM.
type Request struct {
	Name, Tenant, Backend string
	Spec                  record.Spec
	MAC                   string // empty: generated
	Secret                string // of the guest agent; empty: generated
	Labels                map[string]string
	Autostart             bool
	Start                 bool // as soon as it is created
	// Template is the name of the template that it should start from. Instant allows any. If neither is
	// given, or the VM does not fit, it boots.
	Template string
	Instant  bool

	Arrival *Arrival // nil: the VM is new
}

// Arrival is what is known of a VM that comes from another host.
type Arrival struct {
	record.Arrival
	VM        string        // its id
	DiskBase  string        // the base that its disk stands on; empty: none
	DiskBytes int64         // as its guest sees it
	Disks     []record.Disk // beside the system disk
	// Generation is that of its row at the other host, from which this host goes on.
	Generation int64
	// Secrets of its agent, a line each.
	Secrets              string
	CreatedAt, ExpiresAt time.Time
}

// check completes a request and validates what does not depend on the host.
func (p *Planner) check(ctx context.Context, req *Request) error {
	c, spec := caller.From(ctx), &req.Spec
	if c.Tenant != "" {
		req.Tenant = c.Tenant // a tenant's credentials override the request
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
		return fault.InvalidField("cloud_init.hostname", "is not a host name (RFC 1123)")
	case spec.ServedDisk && req.Backend != backend.QEMU && req.Backend != backend.Auto:
		return fault.InvalidField("served_disk", "takes the backend qemu")
	case spec.ServedDisk && req.Start:
		return fault.InvalidField("start", "must be false with served_disk: the disk has to be served before the VM starts")
	case spec.ServedDisk && req.Autostart:
		return fault.InvalidField("autostart", "must be false with served_disk: nobody serves the disk when the host starts")
	case spec.Storage != storage.Dir && !p.host.HasStorage(spec.Storage):
		return fault.InvalidField("storage",
			"%s is not configured on this host; see storage in the daemon's document", spec.Storage)
	}
	if spec.ServedDisk {
		req.Backend = backend.QEMU
	}
	if strings.ContainsFunc(spec.KernelArgs, unicode.IsControl) {
		return fault.InvalidField("kernel_args", "must not contain control characters")
	}
	if strings.ContainsRune(spec.CloudInit.UserData, 0) {
		return fault.InvalidField("cloud_init.user_data", "must not contain NUL")
	}
	if err := checkLabels(req.Labels); err != nil {
		return err
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
	return p.checkNetwork(ctx, req)
}

func (p *Planner) checkNetwork(ctx context.Context, req *Request) error {
	n := &req.Spec.Network
	if err := p.checkForwards(ctx, n); err != nil {
		return err
	}
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
	if n.IP != "" && n.Mode == record.NetworkBridge && (n.Bridge == "" || n.Bridge == p.doc.Network.Bridge) {
		if addr, err := netip.ParseAddr(n.IP); err == nil && !p.host.UsableAddress(addr) {
			return fault.InvalidField("network.ip",
				"must be an address in the network %s that a guest can use", p.doc.Network.Subnet)
		}
	}
	if n.Bridge == "" {
		return nil
	}
	switch {
	case n.Mode != record.NetworkBridge && n.Mode != record.NetworkTap:
		return fault.InvalidField("network.bridge", "takes the mode bridge or tap")
	case !configfile.ValidDevice(n.Bridge):
		return fault.InvalidField("network.bridge", "is not a valid name of a device")
	case n.Bridge != p.doc.Network.Bridge && !slices.Contains(p.doc.Network.Bridges, n.Bridge):
		return fault.InvalidField("network.bridge",
			"VMs may not join %s; see network.allowed_bridges in the daemon's document", n.Bridge)
	}
	return nil
}
