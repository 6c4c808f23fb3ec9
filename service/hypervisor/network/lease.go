package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// maxFile limits the size of the lease file, in bytes. A lease takes about 150.
const maxFile = 64 << 20

// lease is the stored state of a VM's port, from Attach until Release.
type lease struct {
	VM       string     `json:"vm"`
	MAC      mac        `json:"mac"`
	Tenant   string     `json:"tenant,omitempty"`
	Bridge   string     `json:"bridge"`
	IP       netip.Addr `json:"ip,omitzero"`
	Hostname string     `json:"hostname,omitempty"`
}

type leaseFile struct {
	Version int     `json:"version"`
	Leases  []lease `json:"leases"`
}

// book is the list of leases. Its user must serialize changes; reading is always safe.
type book struct {
	path    string
	bridge  string       // the managed one
	address netip.Prefix // of the managed one

	mu    sync.RWMutex
	byVM  map[string]lease
	byMAC map[mac]lease         // on the managed bridge
	taken map[netip.Addr]string // on the managed bridge: who has it
}

// openBook reads the lease file, if it exists. Leases with addresses outside of the network are
// dropped and returned as strange; their VMs get other addresses.
func openBook(o Options) (b *book, strange []lease, err error) {
	b = &book{path: o.LeaseFile, bridge: o.Bridge, address: o.Address, byVM: map[string]lease{}}
	leases, err := readLeases(o.LeaseFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read the addresses of VMs in %s: %w", o.LeaseFile, err)
	}
	b.index()
	for _, l := range leases {
		managed := l.Bridge == b.bridge
		if managed && !b.usable(l.IP) {
			strange = append(strange, l)
			continue
		}
		if checkVM(l.VM) != nil || !isDevice(l.Bridge) || b.clash(l) != nil || b.byVM[l.VM].VM != "" ||
			managed && b.taken[l.IP] != "" {
			return nil, nil, fmt.Errorf(
				"the entry of VM %.140q in %s is damaged or contradicts another", l.VM, o.LeaseFile,
			)
		}
		b.byVM[l.VM] = l
		b.show(l)
	}
	return b, strange, nil
}

func readLeases(path string) ([]lease, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	var content leaseFile
	if len(text) > maxFile {
		return nil, errors.New("it is too large")
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, err
	}
	if content.Version != 1 {
		return nil, fmt.Errorf("it has version %d, and this program knows version 1", content.Version)
	}
	return content.Leases, nil
}

// index rebuilds the indexes of byVM. The caller holds b.mu, or is the only user of b.
func (b *book) index() {
	b.byMAC, b.taken = make(map[mac]lease, len(b.byVM)), make(map[netip.Addr]string, len(b.byVM))
	for _, l := range b.byVM {
		b.show(l)
	}
}

func (b *book) show(l lease) {
	if l.Bridge == b.bridge {
		b.byMAC[l.MAC], b.taken[l.IP] = l, l.VM
	}
}

// usable reports whether a guest of the managed bridge may have an address.
func (b *book) usable(a netip.Addr) bool {
	return a.Is4() && b.address.Contains(a) && !reserved(b.address, a) && a != b.address.Addr()
}

// clash fails if another VM on the same bridge has the same Ethernet address or, on an operator's
// bridge, the same IP address.
func (b *book) clash(l lease) error {
	for _, other := range b.byVM {
		if other.VM == l.VM || other.Bridge != l.Bridge {
			continue
		}
		if other.MAC == l.MAC {
			return fault.New(fault.Conflict, "network.mac %s is that of another VM on bridge %s", l.MAC, l.Bridge)
		}
		if l.Bridge != b.bridge && l.IP.IsValid() && l.IP == other.IP {
			return fault.New(fault.Conflict, "network.ip %s is that of another VM on bridge %s", l.IP, l.Bridge)
		}
	}
	return nil
}

// grant assigns a port its address and stores it on disk. A VM keeps its address while its Ethernet
// address and bridge stay the same.
func (b *book) grant(l lease) (lease, error) {
	b.mu.RLock()
	before, known := b.byVM[l.VM]
	err := b.clash(l)
	if l.Bridge == b.bridge && err == nil {
		if known && before.MAC == l.MAC && before.Bridge == l.Bridge {
			l.IP = before.IP
		} else {
			l.IP, err = b.choose(l)
		}
	}
	b.mu.RUnlock()
	if err != nil || known && before == l {
		return l, err
	}
	return l, b.put(l)
}

// choose returns the requested address if it is free, otherwise the lowest free one.
func (b *book) choose(l lease) (netip.Addr, error) {
	free := func(a netip.Addr) bool { return b.usable(a) && (b.taken[a] == "" || b.taken[a] == l.VM) }
	if free(l.IP) {
		return l.IP, nil
	}
	for a := b.address.Masked().Addr().Next(); b.address.Contains(a); a = a.Next() {
		if free(a) {
			return a, nil
		}
	}
	return netip.Addr{}, fault.New(
		fault.Unavailable, "every address of %s is taken; delete VMs or make network.address larger",
		b.address.Masked(),
	)
}

// put inserts or replaces the lease of a VM.
func (b *book) put(l lease) error {
	after := maps.Clone(b.byVM) // only replace changes byVM
	after[l.VM] = l
	return b.replace(after)
}

// remove removes the leases of VMs.
func (b *book) remove(vms ...string) error {
	after := maps.Clone(b.byVM)
	for _, vm := range vms {
		delete(after, vm)
	}
	if len(after) == len(b.byVM) {
		return nil
	}
	return b.replace(after)
}

// replace replaces all leases, on disk first.
func (b *book) replace(after map[string]lease) error {
	content := leaseFile{
		Version: 1,
		Leases:  slices.SortedFunc(maps.Values(after), func(x, y lease) int { return strings.Compare(x.VM, y.VM) }),
	}
	text, err := json.MarshalIndent(content, "", " ")
	if err == nil {
		err = durable.Replace(b.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fault.Wrap(fault.StorageFailed, err, "the addresses of VMs cannot be kept")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byVM = after
	b.index()
	return nil
}

func (b *book) of(vm string) (lease, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	l, found := b.byVM[vm]
	return l, found
}

// addresses returns the addresses assigned to a VM.
func (b *book) addresses(vm string) []netip.Addr {
	l, _ := b.of(vm)
	if !l.IP.IsValid() {
		return nil
	}
	return []netip.Addr{l.IP}
}

// guest returns the lease with this Ethernet address on the managed bridge.
func (b *book) guest(m mac) (lease, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	l, found := b.byMAC[m]
	return l, found
}

func (b *book) all() []lease {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Collect(maps.Values(b.byVM))
}

// holder returns the VM that has an address on the managed bridge, or "".
func (b *book) holder(a netip.Addr) string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.taken[a]
}
