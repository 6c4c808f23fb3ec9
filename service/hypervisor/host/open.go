package host

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/cgroup"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/hypervisor/network"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
	"github.com/mainstay-infra/mainstay/service/hypervisor/storage"
)

// Config holds the dependencies of a Host.
type Config struct {
	Data     string // absolute; created by MakeFolders
	Document *configfile.Config
	Backends map[string]backend.Backend
	// AgentProgram returns the path of the guest agent's program, or "" if there is none now.
	AgentProgram func() string
	Policy       *admission.Policy // which folders guests may see
	Store        *record.Store
	Log          *slog.Logger
	// OnFlow gets the decisions of network policies. It must not wait.
	OnFlow func(network.Flow)
}

// Host provides the host's resources to VMs.
type Host struct {
	data     string
	doc      *configfile.Config
	store    *record.Store
	log      *slog.Logger
	policy   *admission.Policy
	agent    func() string
	backends map[string]backend.Backend
	pools    map[string]storage.Pool
	network  *network.Manager  // nil: network modes bridge and tap are unavailable
	groups   *cgroup.Hierarchy // nil: VMs are not confined, or the host has no usable control groups
	images   memories          // of templates
}

// Open detects the storages, networks and control groups of this host.
func Open(c Config) (*Host, error) {
	h := &Host{
		data: c.Data, doc: c.Document, policy: c.Policy, store: c.Store, log: c.Log, agent: c.AgentProgram,
		backends: c.Backends,
	}
	h.openPools()
	if err := h.openNetwork(c.OnFlow); err != nil {
		return nil, err
	}
	return h, h.openGroups()
}

// MakeFolders creates the data folder and its subfolders. VMs that run under their own uids need
// search permission on it.
func MakeFolders(data string, jailer *configfile.Jailer) error {
	if err := os.MkdirAll(data, 0o711); err != nil { //nolint:gosec // what is in it keeps its own permissions
		return fault.Wrap(fault.Invalid, err, "data: cannot make the folder %s", data)
	}
	for name, mode := range map[string]os.FileMode{
		"vms": 0o711, "backups": 0o700, "bases": 0o711, "state": 0o700, "templates": 0o700,
	} {
		if err := os.MkdirAll(filepath.Join(data, name), mode); err != nil {
			return fault.Wrap(fault.Invalid, err, "data: cannot make a folder in %s", data)
		}
	}
	if !jailer.Enabled {
		return nil
	}
	if os.Geteuid() != 0 {
		return fault.New(fault.Invalid, "jailer.enabled: running VMs under uids of their own takes root")
	}
	for dir := data; dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fault.New(fault.Invalid,
				"jailer.enabled: VMs under uids of their own cannot pass through %s: chmod o+x %s", dir, dir)
		}
	}
	return nil
}

func (h *Host) openPools() {
	h.pools = map[string]storage.Pool{storage.Dir: storage.DirPool{}}
	st := &h.doc.Storage
	if st.LVMVolumeGroup != "" {
		h.pools[storage.LVMThin] = storage.LVMPool{Group: st.LVMVolumeGroup, Thin: st.LVMThinPool}
	}
	if st.NBDServer != "" {
		h.pools[storage.NBD] = storage.NBDPool{Server: st.NBDServer}
	}
	if st.CephPool != "" {
		pool := storage.RBDPool{Pool: st.CephPool, User: st.CephUser, Conf: st.CephConf}
		h.pools[storage.CephRBD] = pool
		pool.InPlace = true
		h.pools[storage.CephRBDInPlace] = pool
	}
}

// openGroups opens the control groups in which VMs are confined, if the host allows that.
func (h *Host) openGroups() error {
	if !h.doc.Jailer.Enabled {
		return nil
	}
	name := sha256.Sum256([]byte(h.data))
	groups, err := cgroup.Open(fmt.Sprintf("mainstay-%x", name[:4]))
	if err != nil {
		if h.doc.Jailer.Enforce {
			return fault.New(fault.Invalid, "jailer.enforce: %s", fault.From(err).Message)
		}
		h.log.Warn("VMs run without limits by control groups", "reason", fault.From(err).Message)
		return nil
	}
	h.groups = groups
	return nil
}

// openNetwork reads only its own file: VMs without a bridge need nothing more.
func (h *Host) openNetwork(onFlow func(network.Flow)) error {
	subnet, err := netip.ParsePrefix(h.doc.Network.Subnet)
	if err != nil {
		return err
	}
	o := network.Options{
		Log: h.log, Owner: h.data, ShareBridge: h.doc.Network.ShareBridge, Bridge: h.doc.Network.Bridge,
		LeaseFile: filepath.Join(h.data, "state", "leases.json"), NoNAT: h.doc.Network.DisableNAT,
		Address: netip.PrefixFrom(subnet.Addr().Next(), subnet.Bits()), OnFlow: onFlow,
	}
	for _, server := range h.doc.Network.DNS {
		addr, err := netip.ParseAddr(server)
		if err != nil {
			return err
		}
		o.DNS = append(o.DNS, addr)
	}
	manager, err := network.New(o)
	if err != nil {
		return err
	}
	if err := manager.Check(); err != nil {
		h.log.Info("VMs can have no network of mode bridge or tap here", "reason", fault.From(err).Message)
		return nil
	}
	h.network = manager
	return nil
}

// KeepNetwork serves DHCP to guests until ctx ends.
func (h *Host) KeepNetwork(ctx context.Context) {
	if h.network == nil {
		return
	}
	if err := h.network.Run(ctx); err != nil {
		h.log.Error("the rules of the guests' network could not be removed, although no VM needs them", "error", err)
	}
}

// HasNetwork reports whether VMs can use the network modes bridge and tap.
func (h *Host) HasNetwork() bool { return h.network != nil }

// HasStorage reports whether the named storage is configured.
func (h *Host) HasStorage(name string) bool { return h.pools[name] != nil }

// Backends returns the backends of this host by name.
func (h *Host) Backends() map[string]backend.Backend { return h.backends }

// AgentProgram returns the path of the guest agent's program, or "" if there is none.
func (h *Host) AgentProgram() string { return h.agent() }

// UsableAddress reports whether a guest on the daemon's own bridge can have the address.
func (h *Host) UsableAddress(a netip.Addr) bool { return h.network == nil || h.network.Usable(a) }
