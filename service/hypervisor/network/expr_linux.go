package network

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A rule is a list of these fragments. Each loads something and continues only if it matches. If a
// packet lacks it (as a later IP fragment lacks ports), the rule ends without a verdict. Rules that
// accept packets are therefore safe against truncated or malformed packets; rules that drop packets
// alone are not.

// rule joins fragments.
func rule(fragments ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, f := range fragments {
		all = append(all, f...)
	}
	return all
}

// The registers for loaded values: 16 bytes of r1, followed by words of four bytes, of which an
// Ethernet address takes two.
const (
	r1       = 1
	afterR1  = 12 // NFT_REG32_04
	afterMAC = 14 // NFT_REG32_06
)

func load(base expr.PayloadBase, offset, length, register uint32) []expr.Any {
	return []expr.Any{&expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: length}}
}

func meta(key expr.MetaKey) []expr.Any { return []expr.Any{&expr.Meta{Key: key, Register: r1}} }

func compare(op expr.CmpOp, value []byte) []expr.Any {
	return []expr.Any{&expr.Cmp{Op: op, Register: r1, Data: value}}
}

// field compares bytes of a packet.
func field(base expr.PayloadBase, offset uint32, op expr.CmpOp, value ...byte) []expr.Any {
	return rule(load(base, offset, uint32(len(value)), r1), compare(op, value))
}

func etherType(t uint16) []expr.Any {
	return field(expr.PayloadBaseLLHeader, 12, expr.CmpOpEq, binaryutil.BigEndian.PutUint16(t)...)
}

func protocol(p byte) []expr.Any {
	return rule(meta(expr.MetaKeyL4PROTO), compare(expr.CmpOpEq, []byte{p}))
}

// port compares the source (offset 0) or destination port (offset 2) of UDP or TCP.
func port(proto byte, offset uint32, op expr.CmpOp, number uint16) []expr.Any {
	return rule(
		protocol(proto), field(expr.PayloadBaseTransportHeader, offset, op, binaryutil.BigEndian.PutUint16(number)...),
	)
}

const sourcePort, destinationPort = 0, 2

// ipv4Only ends a rule of the inet family for IPv6 packets.
func ipv4Only() []expr.Any {
	return rule(meta(expr.MetaKeyNFPROTO), compare(expr.CmpOpEq, []byte{unix.NFPROTO_IPV4}))
}

// within compares the source (offset 12) or destination (offset 16) of IPv4.
func within(offset uint32, network netip.Prefix) []expr.Any {
	address := network.Masked().Addr().As4()
	mask := make([]byte, 4)
	for i := range network.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return rule(load(expr.PayloadBaseNetworkHeader, offset, 4, r1),
		[]expr.Any{&expr.Bitwise{SourceRegister: r1, DestRegister: r1, Len: 4, Mask: mask, Xor: make([]byte, 4)}},
		compare(expr.CmpOpEq, address[:]))
}

const sourceIP, destinationIP = 12, 16

// interfaceIs compares the name of a packet's input or output device.
func interfaceIs(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	return rule(meta(key), compare(op, ifname(name)))
}

// ifname returns a name in the form in which the kernel compares it.
func ifname(name string) []byte { return append([]byte(name), make([]byte, 16-len(name))...) }

// established matches packets of connections that were accepted.
func established() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: r1},
		&expr.Bitwise{
			SourceRegister: r1,
			DestRegister:   r1,
			Len:            4,
			Mask:           binaryutil.NativeEndian.PutUint32(expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED),
			Xor:            make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: r1, Data: make([]byte, 4)},
	}
}

// in looks up the value that starts in r1.
func in(set *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: r1, SetName: set.Name, SetID: set.ID}}
}

func notIn(set *nftables.Set) []expr.Any {
	return []expr.Any{&expr.Lookup{SourceRegister: r1, SetName: set.Name, SetID: set.ID, Invert: true}}
}

// overRate continues if packets from the device in r1 exceed a rate.
func overRate(set *nftables.Set, perSecond uint64, burst uint32) []expr.Any {
	return []expr.Any{&expr.Dynset{
		SrcRegKey: r1,
		SetName:   set.Name,
		SetID:     set.ID,
		Operation: unix.NFT_DYNSET_OP_UPDATE,
		Timeout:   set.Timeout,
		Exprs: []expr.Any{
			&expr.Limit{
				Type:  expr.LimitTypePkts,
				Rate:  perSecond,
				Unit:  expr.LimitTimeSecond,
				Burst: burst,
				Over:  true,
			},
		},
	}}
}

func verdict(kind expr.VerdictKind) []expr.Any { return []expr.Any{&expr.Verdict{Kind: kind}} }

func accept() []expr.Any { return verdict(expr.VerdictAccept) }

func drop() []expr.Any { return verdict(expr.VerdictDrop) }

func goTo(c *nftables.Chain) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: c.Name}}
}
