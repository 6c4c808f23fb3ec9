package network

import (
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// The place of a packet in its flow, in the bits stageMask of its mark. What is not tracked is new.
const (
	stageNew         = 0x00000000 // begins a flow, or is repeated until an answer comes
	stageReply       = 0x10000000 // comes from the end that did not begin the flow
	stageRelated     = 0x20000000 // is an ICMP error about a flow
	stagePicked      = 0x30000000 // of TCP, from the middle of an unknown flow, from its beginner's end
	stageEstablished = 0x40000000 // comes from the end that began the flow
	stagePickedReply = 0x50000000 // as stagePicked, from the other end
	stageDoubtful    = 0x60000000 // of no flow that could be
	stageMask        = 0x70000000
)

func maskOf(mask, xor uint32) []expr.Any {
	return []expr.Any{&expr.Bitwise{
		SourceRegister: r1, DestRegister: r1, Len: 4,
		Mask: binaryutil.NativeEndian.PutUint32(mask), Xor: binaryutil.NativeEndian.PutUint32(xor),
	}}
}

// stage compares the stage of a packet.
func stage(op expr.CmpOp, with uint32) []expr.Any {
	return rule(meta(expr.MetaKeyMARK), maskOf(stageMask, 0), compare(op, binaryutil.NativeEndian.PutUint32(with)))
}

func setStage(to uint32) []expr.Any {
	return rule(meta(expr.MetaKeyMARK), maskOf(^uint32(stageMask), to),
		[]expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: r1}})
}

// flowState matches packets whose flow is in one of the given states.
func flowState(bits uint32) []expr.Any {
	return rule([]expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: r1}}, maskOf(bits, 0),
		compare(expr.CmpOpNeq, make([]byte, 4)))
}

// stageRules write the stage of a packet into its mark.
func stageRules() [][]expr.Any {
	answers := rule([]expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: r1}}, compare(expr.CmpOpEq, []byte{1}))
	label := make([]byte, 16)
	label[reversedLabel/8] = 1 << (reversedLabel % 8)
	reversed := rule([]expr.Any{&expr.Ct{Key: expr.CtKeyLABELS, Register: r1}},
		[]expr.Any{&expr.Bitwise{SourceRegister: r1, DestRegister: r1, Len: 16, Mask: label, Xor: make([]byte, 16)}},
		compare(expr.CmpOpNeq, make([]byte, 16)))
	reverse := []expr.Any{
		&expr.Immediate{Register: r1, Data: label},
		&expr.Ct{Key: expr.CtKeyLABELS, SourceRegister: true, Register: r1},
	}
	const flags, syn = 13, 2
	middle := rule(flowState(expr.CtStateBitNEW), protocol(unix.IPPROTO_TCP),
		load(expr.PayloadBaseTransportHeader, flags, 1, r1),
		[]expr.Any{&expr.Bitwise{SourceRegister: r1, DestRegister: r1, Len: 1, Mask: []byte{syn}, Xor: []byte{0}}},
		compare(expr.CmpOpEq, []byte{0}))
	ephemeral := func(offset uint32, op expr.CmpOp) []expr.Any {
		return field(expr.PayloadBaseTransportHeader, offset, op, binaryutil.BigEndian.PutUint16(firstEphemeral)...)
	}
	between := func(source, destination expr.CmpOp) []expr.Any {
		return rule(middle, ephemeral(sourcePort, source), ephemeral(destinationPort, destination))
	}
	related := flowState(expr.CtStateBitRELATED)
	return [][]expr.Any{
		rule(flowState(expr.CtStateBitINVALID), setStage(stageDoubtful), accept()),
		rule(related, protocol(unix.IPPROTO_ICMP), setStage(stageRelated), accept()),
		rule(related, protocol(unix.IPPROTO_ICMPV6), setStage(stageRelated), accept()),
		rule(between(expr.CmpOpLt, expr.CmpOpGte), reverse, setStage(stagePickedReply), accept()),
		rule(between(expr.CmpOpGte, expr.CmpOpLt), setStage(stagePicked), accept()),
		rule(middle, setStage(stageDoubtful), accept()),
		rule(reversed, answers, setStage(stageEstablished), accept()),
		rule(reversed, setStage(stageReply), accept()),
		rule(answers, setStage(stageReply), accept()),
		rule(flowState(expr.CtStateBitESTABLISHED), setStage(stageEstablished), accept()),
		rule(setStage(stageNew), accept()),
	}
}
