//go:build linux

// Package decap implements the backend's end of a tunnel for tests: it removes the outer headers of
// IP-in-IP and GRE packets where the kernel has no device for that.
package decap

import (
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

//go:generate go tool -modfile=../../../../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel -output-suffix _bpf program bpf/decap.c -- -O2 -Wall -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu

// Attach decapsulates the packets that arrive on a device of the caller's network namespace, until
// close is called.
func Attach(device string) (close func() error, err error) {
	return attach(device, link.XDPGenericMode, func(o *programObjects) *ebpf.Program { return o.Decapsulate })
}

// AttachPass attaches a native program to a device that passes all packets unchanged. A veth device
// accepts frames that its peer sends with XDP_TX only if it has such a program.
func AttachPass(device string) (close func() error, err error) {
	return attach(device, link.XDPDriverMode, func(o *programObjects) *ebpf.Program { return o.Pass })
}

func attach(device string, flags link.XDPAttachFlags, which func(*programObjects) *ebpf.Program) (func() error, error) {
	d, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	var objects programObjects
	if err := loadProgramObjects(&objects, nil); err != nil {
		return nil, err
	}
	defer objects.Close() // the link keeps the program
	l, err := link.AttachXDP(link.XDPOptions{Program: which(&objects), Interface: d.Index, Flags: flags})
	if err != nil {
		return nil, err
	}
	return l.Close, nil
}
