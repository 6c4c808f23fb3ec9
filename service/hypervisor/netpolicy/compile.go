package netpolicy

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits of what a direction compiles to. The kernel takes about a second for the largest.
const (
	maxNetworks = 16 << 10 // networks and exceptions of all rules of a direction
	maxEntries  = 16 << 10 // of a direction
	maxWork     = 1 << 20  // ports of rules, summed over classes
)

// Interval is a range of addresses of one class.
type Interval struct {
	From, To netip.Addr
	Class    uint32
}

// Entry is a range of classes, protocols and keys for which a rule decides.
type Entry struct {
	FromClass, ToClass       uint32
	FromProtocol, ToProtocol uint8
	FromKey, ToKey           uint16
	Rule                     int
}

// Tables are a direction as the kernel looks it up. No two intervals and no two entries overlap.
type Tables struct {
	IPv4, IPv6 []Interval // in order; together they are all addresses
	Entries    []Entry    // where none applies, the default does
	Default    Action
	Rules      []Outcome
}

// Outcome is what a rule does.
type Outcome struct {
	Name   string
	Action Action
}

// Compiled is a policy as tables.
type Compiled struct{ Ingress, Egress Tables }

// Compile checks a policy and returns its tables. It fails with a fault.Invalid that names the field.
func Compile(p *Policy) (*Compiled, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	ingress, err := p.Ingress.compile("policy.ingress.rules")
	if err != nil {
		return nil, err
	}
	egress, err := p.Egress.compile("policy.egress.rules")
	return &Compiled{Ingress: ingress, Egress: egress}, err
}

// DenyAll returns a policy by which nothing passes.
func DenyAll() *Compiled {
	all := func(a netip.Addr) []Interval { return []Interval{{From: a, To: lastOf(netip.PrefixFrom(a, 0))}} }
	t := Tables{IPv4: all(netip.IPv4Unspecified()), IPv6: all(netip.IPv6Unspecified()), Default: Deny}
	return &Compiled{Ingress: t, Egress: t}
}

func (d *Direction) compile(field string) (Tables, error) {
	t := Tables{Default: d.Default}
	for i := range d.Rules {
		t.Rules = append(t.Rules, Outcome{Name: d.Rules[i].Name, Action: d.Rules[i].Action})
	}
	marks, err := d.marks(field)
	if err != nil {
		return t, err
	}
	classes := newClasses(d)
	t.IPv4 = classes.sweep(marks, netip.IPv4Unspecified())
	t.IPv6 = classes.sweep(marks, netip.IPv6Unspecified())
	t.Entries, err = d.entries(classes.members, field)
	return t, err
}

// Judge is Judge by the tables.
func (t *Tables) Judge(p Packet) (Action, int) {
	intervals := t.IPv4
	if !p.Peer.Is4() {
		intervals = t.IPv6
	}
	i, _ := slices.BinarySearchFunc(intervals, p.Peer, func(i Interval, a netip.Addr) int { return i.To.Compare(a) })
	class := intervals[i].Class
	for _, e := range t.Entries {
		if e.FromClass <= class && class <= e.ToClass && e.FromProtocol <= p.Protocol && p.Protocol <= e.ToProtocol &&
			e.FromKey <= p.Key && p.Key <= e.ToKey {
			return t.Rules[e.Rule].Action, e.Rule
		}
	}
	return t.Default, Default
}

// mark is an address from which on a network of a rule matches (change 1) or no longer does (-1).
type mark struct {
	at     netip.Addr
	rule   int
	change int
}

// marks returns where the networks of all rules begin and end, in order.
func (d *Direction) marks(field string) ([]mark, error) {
	var all []mark
	add := func(p netip.Prefix, rule, change int) {
		all = append(all, mark{p.Addr(), rule, change})
		if next := lastOf(p).Next(); next.IsValid() {
			all = append(all, mark{next, rule, -change})
		}
	}
	networks := 0
	for i := range d.Rules {
		for k := range d.Rules[i].Peers {
			at := fmt.Sprintf("%s[%d].peers[%d]", field, i, k)
			n, err := d.Rules[i].Peers[k].networks(at)
			if err != nil {
				return nil, err
			}
			if networks += 1 + len(n.except); networks > maxNetworks {
				return nil, fault.InvalidField(at,
					"the rules of this direction have more than %d networks and exceptions together", maxNetworks)
			}
			add(n.prefix, i, 1)
			for _, e := range disjoint(n.except) {
				add(e, i, -1)
			}
		}
	}
	slices.SortFunc(all, func(a, b mark) int { return a.at.Compare(b.at) })
	return all, nil
}

// disjoint returns networks without those inside others.
func disjoint(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var kept []netip.Prefix
	for _, p := range all {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept
}

// lastOf returns the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// classes numbers the sets of rules that match addresses.
type classes struct {
	everywhere []int // rules without peers
	rules      int
	numbers    map[string]uint32 // by the set as bits
	members    [][]int           // the rules of each class, in order
}

func newClasses(d *Direction) *classes {
	c := &classes{rules: len(d.Rules), numbers: map[string]uint32{}}
	for i := range d.Rules {
		if len(d.Rules[i].Peers) == 0 {
			c.everywhere = append(c.everywhere, i)
		}
	}
	return c
}

// sweep returns the intervals of the address family of first, its first address.
func (c *classes) sweep(marks []mark, first netip.Addr) []Interval {
	counts := make([]int, c.rules) // how many networks of each rule match here
	here := make([]uint64, (c.rules+63)/64)
	set := func(rule, change int) {
		before := counts[rule] > 0
		counts[rule] += change
		if after := counts[rule] > 0; after != before {
			here[rule/64] ^= 1 << (rule % 64)
		}
	}
	for _, rule := range c.everywhere {
		set(rule, 1)
	}
	var found []Interval
	at := first
	end := func(to netip.Addr) {
		class := c.number(here)
		if n := len(found); n > 0 && found[n-1].Class == class {
			found[n-1].To = to
		} else {
			found = append(found, Interval{From: at, To: to, Class: class})
		}
	}
	for _, m := range marks {
		if m.at.BitLen() != first.BitLen() {
			continue
		}
		if m.at != at {
			end(m.at.Prev())
			at = m.at
		}
		set(m.rule, m.change)
	}
	end(lastOf(netip.PrefixFrom(first, 0)))
	return found
}

// number returns the number of the class of addresses that these rules match.
func (c *classes) number(set []uint64) uint32 {
	key := make([]byte, 0, 8*len(set))
	for _, b := range set {
		key = binary.LittleEndian.AppendUint64(key, b)
	}
	if n, has := c.numbers[string(key)]; has {
		return n
	}
	n := uint32(len(c.members)) //nolint:gosec // bounded by maxNetworks
	c.numbers[string(key)] = n
	var rules []int
	for i := range c.rules {
		if set[i/64]&(1<<(i%64)) != 0 {
			rules = append(rules, i)
		}
	}
	c.members = append(c.members, rules)
	return n
}

// entries returns what decides for each class, protocol and key.
func (d *Direction) entries(members [][]int, field string) ([]Entry, error) {
	var all []Entry
	open := map[Entry]int{} // entries that end at the class before this one, as if of class 0
	work, empty := 0, newMatching(d)
	for class, rules := range members {
		class := uint32(class) //nolint:gosec // bounded by maxNetworks
		for _, i := range rules {
			work += 1 + len(d.Rules[i].Ports)
		}
		if work > maxWork {
			return nil, tooLarge(field)
		}
		still := map[Entry]int{}
		for _, e := range d.rectangles(rules, empty) {
			if at, has := open[e]; has {
				all[at].ToClass = class
				still[e] = at
				continue
			}
			still[e] = len(all)
			e.FromClass, e.ToClass = class, class
			if all = append(all, e); len(all) > maxEntries {
				return nil, tooLarge(field)
			}
		}
		open = still
	}
	return all, nil
}

func tooLarge(field string) error {
	return fault.InvalidField(field, "the rules overlap in more ways than can be enforced (%d); "+
		"use fewer peers or ports, or rules that overlap less", maxEntries)
}

// run is a range of keys for which a rule decides.
type run struct {
	from, to uint16
	rule     int
}

// rectangles returns what decides for each protocol and key among the given rules, as if of class 0.
func (d *Direction) rectangles(rules []int, empty *matching) []Entry {
	var all []Entry
	var before []run
	for _, s := range segments() {
		runs := d.runs(rules, s.from, empty)
		if last := len(all) - len(runs); s.from > 0 && slices.Equal(runs, before) && last >= 0 {
			for i := range runs {
				all[last+i].ToProtocol = s.to
			}
			continue
		}
		for _, r := range runs {
			all = append(all, Entry{FromProtocol: s.from, ToProtocol: s.to, FromKey: r.from, ToKey: r.to, Rule: r.rule})
		}
		before = runs
	}
	return all
}

// segment is a range of protocols that rules cannot tell apart.
type segment struct{ from, to uint8 }

func segments() (all []segment) {
	next := 0
	for _, p := range []int{1, 6, 17, 58, 132, 256} {
		if p > next {
			all = append(all, segment{uint8(next), uint8(p - 1)}) //nolint:gosec // at most 255
		}
		if p < 256 {
			all = append(all, segment{uint8(p), uint8(p)}) //nolint:gosec // at most 255
		}
		next = p + 1
	}
	return all
}

// runs returns which rule decides for the keys of a protocol. It takes an empty set and leaves it empty.
func (d *Direction) runs(rules []int, protocol uint8, matching *matching) []run {
	type edge struct {
		at     int
		rule   int
		change int
	}
	var edges []edge
	for _, i := range rules {
		r := &d.Rules[i]
		if len(r.Ports) == 0 {
			edges = append(edges, edge{0, i, 1}, edge{1 << 16, i, -1})
		}
		for k := range r.Ports {
			if p, from, to := r.Ports[k].interval(); p == protocol {
				edges = append(edges, edge{int(from), i, 1}, edge{int(to) + 1, i, -1})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var found []run
	for n, e := range edges {
		matching.change(e.rule, e.change)
		to := 1 << 16
		if n+1 < len(edges) {
			to = edges[n+1].at
		}
		rule := matching.first()
		if to == e.at || rule == Default || e.at > 65535 {
			continue
		}
		from, last := uint16(e.at), uint16(to-1) //nolint:gosec // at most 65535
		if k := len(found); k > 0 && found[k-1].rule == rule && int(found[k-1].to)+1 == e.at {
			found[k-1].to = last
			continue
		}
		found = append(found, run{from, last, rule})
	}
	return found
}

// matching is the set of rules that match, in which the one that decides is found fast.
type matching struct {
	counts []int // how often each rule matches
	denies []bool
	bits   [2][]uint64 // those that deny, and those that allow
}

func newMatching(d *Direction) *matching {
	n := len(d.Rules)
	m := &matching{counts: make([]int, n), denies: make([]bool, n)}
	for i := range m.bits {
		m.bits[i] = make([]uint64, (n+63)/64)
	}
	for i := range d.Rules {
		m.denies[i] = d.Rules[i].Action == Deny
	}
	return m
}

func (m *matching) change(rule, by int) {
	before := m.counts[rule] > 0
	m.counts[rule] += by
	if after := m.counts[rule] > 0; after != before {
		set := m.bits[1]
		if m.denies[rule] {
			set = m.bits[0]
		}
		set[rule/64] ^= 1 << (rule % 64)
	}
}

// first returns the rule that decides: the first that denies, else the first that allows, or Default.
func (m *matching) first() int {
	for _, set := range m.bits {
		for i, word := range set {
			if word != 0 {
				return i*64 + bits.TrailingZeros64(word)
			}
		}
	}
	return Default
}
