//go:build linux

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/cilium/ebpf"
)

// Verdicts of an XDP program.
const (
	Aborted  = 0
	Drop     = 1
	Pass     = 2
	TX       = 3
	Redirect = 4
)

// Run gives one frame to the program, as if it had come in on the namespace's
// loopback device, and returns the verdict and the frame as the program left it.
func (d *Datapath) Run(frame []byte) (verdict uint32, out []byte, err error) {
	ro := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+512)}
	verdict, err = d.objects.Balance.Run(ro)
	if err != nil {
		return 0, nil, fmt.Errorf("run the program with %d bytes: %w", len(frame), err)
	}
	return verdict, ro.DataOut, nil
}

// Mac is the address that frames for the program have.
func (d *Datapath) Mac() MAC { return d.ports[0].device.mac }

// IsTight says whether a VIP has little room left.
func (d *Datapath) IsTight() bool { return d.isTight() }

// FlowTable is how many flows there are in the kernel now.
func (d *Datapath) FlowTable() (n int, err error) {
	left, _, err := sweepMap(d.objects.Flows4, func(programTuple4, programFlow) bool { return false })
	return int(left), err
}

// DropReasons are all names of reasons.
func DropReasons() []string { return dropReasons[:] }

// DropCount is the length of the kernel's array of them.
func (d *Datapath) DropCount() int { return int(d.objects.Drops.MaxEntries()) }

// PinnedMaps are the names of the maps that outlive a process.
func PinnedMaps() []string { return sharedMaps() }

// AgeFlow makes a flow look as if its last packet came so long ago.
func (d *Datapath) AgeFlow(f Flow, by time.Duration) error {
	key := tuple4(f.Protocol, f.Client, f.VIP)
	var flow programFlow
	if err := d.objects.Flows4.Lookup(key, &flow); err != nil {
		return err
	}
	flow.Seen -= uint32(by >> tickShift)
	return d.objects.Flows4.Put(key, flow)
}

// AgeFlows makes all flows look as if their last packets came so long ago.
func (d *Datapath) AgeFlows(by time.Duration) error {
	return errors.Join(
		each(d.objects.Flows4, func(f *programFlow) { f.Seen -= uint32(by >> tickShift) }),
		each(d.objects.Flows6, func(f *programFlow) { f.Seen -= uint32(by >> tickShift) }),
	)
}

// AgeReplies does the same for what backends' replies are found by.
func (d *Datapath) AgeReplies(by time.Duration) error {
	return errors.Join(
		each(d.objects.Replies4, func(r *programReply) { r.Seen -= uint32(by >> tickShift) }),
		each(d.objects.Replies6, func(r *programReply) { r.Seen -= uint32(by >> tickShift) }),
	)
}

// AgePaths does the same for what routers said.
func (d *Datapath) AgePaths(by time.Duration) error {
	return each(d.objects.Paths, func(p *programPath) { p.Seen -= uint32(by >> tickShift) })
}

// each changes all values of a map.
func each[V any](m *ebpf.Map, change func(*V)) error {
	keys, values := slab(m.KeySize(), 1<<18), make([]V, 1<<18)
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys.Interface(), values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	if n == 0 {
		return nil
	}
	for i := range n {
		change(&values[i])
	}
	_, err = m.BatchUpdate(keys.Slice(0, n).Interface(), values[:n], nil)
	return err
}

// ForgetFlows empties the flow tables, as others' flows may do, but not those of replies.
func (d *Datapath) ForgetFlows() error {
	_, _, err4 := sweepMap(d.objects.Flows4, func(programTuple4, programFlow) bool { return true })
	_, _, err6 := sweepMap(d.objects.Flows6, func(programTuple6, programFlow) bool { return true })
	return errors.Join(err4, err6)
}

// PinEarlier puts a map of an earlier version, with shorter values and fewer entries, into the place
// of a pinned one, whose content it gets as far as it fits.
func PinEarlier(pins, name string, valueSize, entries uint32) error {
	path := filepath.Join(pins, name)
	now, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return err
	}
	defer now.Close()
	earlier, err := ebpf.NewMap(&ebpf.MapSpec{
		Type:       now.Type(),
		KeySize:    now.KeySize(),
		ValueSize:  valueSize,
		MaxEntries: entries,
		Flags:      now.Flags(),
	})
	if err != nil {
		return err
	}
	defer earlier.Close()
	if now.Type() == ebpf.PerCPUArray {
		if err := carryPerCPU(now, earlier); err != nil {
			return err
		}
	} else {
		keys, values, shorter := slab(now.KeySize(), 1<<16), slab(now.ValueSize(), 1<<16), slab(valueSize, 1<<16)
		var cursor ebpf.MapBatchCursor
		n, err := now.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		for i := range n {
			reflect.Copy(shorter.Index(i), values.Index(i))
		}
		if err := put(earlier, keys, shorter, n, ebpf.UpdateAny); err != nil {
			return err
		}
	}
	return errors.Join(os.Remove(path), earlier.Pin(path))
}

// PinEmpty pins an empty map like the one under a name, under another name.
func PinEmpty(pins, like, name string) error {
	old, err := ebpf.LoadPinnedMap(filepath.Join(pins, like), nil)
	if err != nil {
		return err
	}
	defer old.Close()
	empty, err := ebpf.NewMap(&ebpf.MapSpec{
		Type:       old.Type(),
		KeySize:    old.KeySize(),
		ValueSize:  old.ValueSize(),
		MaxEntries: old.MaxEntries(),
		Flags:      old.Flags(),
	})
	if err != nil {
		return err
	}
	return errors.Join(empty.Pin(filepath.Join(pins, name)), empty.Close())
}

// Closing is how far a connection has ended.
type Closing uint8

// The ways.
const (
	StillOpen  Closing = 0
	HalfClosed Closing = 1
	Ended      Closing = 3
)

// FillPorts makes all source ports of SNAT towards a backend taken, by connections whose last
// packets came two seconds ago.
func (d *Datapath) FillPorts(backend netip.AddrPort, source netip.Addr, vip netip.AddrPort, how Closing) error {
	now, err := ticks()
	if err != nil {
		return err
	}
	const first, ports = 1024, 31744
	replies := make([]programReply, ports)
	for i := range replies {
		replies[i] = programReply{
			Client:     wireAddress(vip.Addr().Next()),
			ClientPort: wirePort(uint16(i)),
			Vip:        wireAddress(vip.Addr()),
			VipPort:    wirePort(vip.Port()),
			Seen:       now - uint32(2*time.Second>>tickShift),
			Answered:   1,
			Closing:    uint8(how),
		}
	}
	if backend.Addr().Is4() {
		keys := make([]programTuple4, ports)
		for i := range keys {
			keys[i] = tuple4(TCP, backend, netip.AddrPortFrom(source, uint16(first+i)))
		}
		_, err = d.objects.Replies4.BatchUpdate(keys, replies, nil)
		return err
	}
	keys := make([]programTuple6, ports)
	for i := range keys {
		keys[i] = tuple6(TCP, backend, netip.AddrPortFrom(source, uint16(first+i)))
	}
	_, err = d.objects.Replies6.BatchUpdate(keys, replies, nil)
	return err
}

// AgeReply does the same for what a backend's replies are found by.
func (d *Datapath) AgeReply(p Protocol, backend, seen netip.AddrPort, by time.Duration) error {
	key := tuple4(p, backend, seen)
	var reply programReply
	if err := d.objects.Replies4.Lookup(key, &reply); err != nil {
		return err
	}
	reply.Seen -= uint32(by >> tickShift)
	return d.objects.Replies4.Put(key, reply)
}

// Repeat runs the program on one frame so many times, each on what the last one
// left, and returns how long one takes.
func (d *Datapath) Repeat(frame []byte, times uint32) (verdict uint32, each time.Duration, err error) {
	return d.objects.Balance.Benchmark(frame, int(times), nil)
}
