package drivertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/coder/websocket"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// A VM with a served disk is taken for one that reads the disk: its guest has the program that looks
// into disks, and shows the disk as one volume, vdb, with the file /disk of its first 64 KiB, beside
// one that is encrypted.

// sampled is how much of a served disk the guest reads, in bytes.
const sampled = 64 << 10

// Inspect has f answer in place of the program that looks into served disks.
func (d *Daemon) Inspect(f func(argv []string) hypervisorapi.ExecOutcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inspect = f
}

// serveDisk is the client of the NBD server behind a socket, as QEMU is.
func (d *Daemon) serveDisk(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	tenant := r.Header.Get("Mainstay-Tenant")
	d.calls = append(d.calls, Call{"ServeDisk", r.URL.Path, tenant, r.Header.Get("Mainstay-Actor")})
	vm := d.vm(r, tenant)
	if vm == nil || vm.State != "stopped" || !value(vm.ServedDisk, false) || r.Header.Get("Authorization") != "Bearer "+Token {
		d.mu.Unlock()
		answer(w, http.StatusConflict, errorBody(http.StatusConflict, "the VM's disk cannot be served"))
		return
	}
	name, over := vm.Name, make(chan struct{})
	d.served[vm.Id] = over
	d.mu.Unlock()
	socket, err := websocket.Accept(w, r, nil)
	if err != nil {
		d.t.Errorf("ServeDisk: %v", err)
		return
	}
	defer func() { _ = socket.CloseNow() }() // it has ended
	socket.SetReadLimit(1 << 20)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	conn := websocket.NetConn(ctx, socket, websocket.MessageBinary)
	size, sample, err := readServed(conn)
	if err != nil {
		if errors.Is(err, errNoNBD) { // other errors mean that the server has left, which it may
			d.t.Errorf("ServeDisk: %v", err)
		}
		return
	}
	d.mu.Lock()
	d.files[name+":/run/volumes/vdb/disk"] = sample
	d.sizes[name] = size
	d.mu.Unlock()
	gone := make(chan struct{})
	routine.Go(nil, "served disk", func() { // the server may leave
		defer close(gone)
		_, _ = conn.Read(make([]byte, 1))
	})
	select {
	case <-over:
	case <-gone:
	}
	cancel()
	<-gone
}

// errNoNBD is wrapped by errors about a server that does not follow the protocol.
var errNoNBD = errors.New("this is not NBD")

// errRead is an error of a disk, as a guest sees it.
var errRead = errors.New("the server could not read the disk")

// readServed reads the beginning of an export, and writes to it.
func readServed(conn net.Conn) (size int64, sample []byte, err error) {
	order := binary.BigEndian
	greeting := make([]byte, 18)
	if _, err := io.ReadFull(conn, greeting); err != nil {
		return 0, nil, err
	}
	if !bytes.HasPrefix(greeting, []byte("NBDMAGICIHAVEOPT")) {
		return 0, nil, fmt.Errorf("%w: the greeting is %q", errNoNBD, greeting)
	}
	hello := order.AppendUint32(nil, 3)
	hello = order.AppendUint32(order.AppendUint32(append(hello, "IHAVEOPT"...), 7), 6)
	if _, err := conn.Write(append(hello, 0, 0, 0, 0, 0, 0)); err != nil {
		return 0, nil, err
	}
	replies := make([]byte, 20+12+20)
	if _, err := io.ReadFull(conn, replies); err != nil {
		return 0, nil, err
	}
	if order.Uint32(replies[12:]) != 3 || order.Uint32(replies[44:]) != 1 {
		return 0, nil, fmt.Errorf("%w: the replies are %x", errNoNBD, replies)
	}
	size = int64(order.Uint64(replies[22:])) //nolint:gosec // a size
	ask := func(kind uint16, length int, data []byte) error {
		request := order.AppendUint16(order.AppendUint32(nil, 0x25609513), 0)
		request = order.AppendUint64(order.AppendUint64(order.AppendUint16(request, kind), 7), 0)
		request = order.AppendUint32(request, uint32(length)) //nolint:gosec // small
		if _, err := conn.Write(append(request, data...)); err != nil {
			return err
		}
		head := make([]byte, 16)
		_, err := io.ReadFull(conn, head)
		if err == nil && order.Uint32(head[4:]) == uint32(syscall.EIO) {
			return errRead
		}
		if err == nil && (order.Uint32(head) != 0x67446698 || order.Uint32(head[4:]) != 0) {
			err = fmt.Errorf("%w: the reply is %x", errNoNBD, head)
		}
		return err
	}
	sample = make([]byte, min(size, sampled))
	err = ask(0, len(sample), nil)
	if err == nil {
		_, err = io.ReadFull(conn, sample)
	}
	if err != nil && !errors.Is(err, errRead) { // a guest goes on after an error of its disk
		return 0, nil, err
	}
	return size, sample, ask(1, 4096, make([]byte, 4096)) // as if a journal were replayed
}

// looked answers for the program that looks into disks. The lock is held.
func (d *Daemon) looked(vm *hypervisorapi.VM, argv []string) hypervisorapi.ExecOutcome {
	if d.inspect != nil {
		return d.inspect(argv)
	}
	argv = append(argv[1:], "", "", "")
	size := int64(len(d.files[vm.Name+":/run/volumes/vdb/disk"]))
	var out any
	switch argv[0] + " " + argv[2] {
	case "volumes ":
		out = []object{
			{"name": "vdb", "size": d.sizes[vm.Name], "kind": "ext4", "label": "root", "error": ""},
			{"name": "vdc", "size": 512, "kind": "luks", "label": "", "error": "it is encrypted"},
		}
	case "files /":
		const at = "2026-01-02T03:04:05Z"
		out = object{"entries": []object{
			{"name": "disk", "type": "file", "size": size, "mode": "-rw-r--r--", "modified": at},
			{"name": "link", "type": "link", "size": 4, "mode": "Lrwxrwxrwx", "modified": at, "target": "disk"},
		}}
	case "resolve /disk", "resolve /link":
		out = object{"path": "/run/volumes/vdb/disk", "size": size}
	default:
		return hypervisorapi.ExecOutcome{ExitCode: 4}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		d.t.Errorf("%v", err)
	}
	return hypervisorapi.ExecOutcome{Stdout: string(raw)}
}

type object = map[string]any

// ping answers for the agents of guests that read served disks, once they have.
func (d *Daemon) ping(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		if _, read := d.sizes[vm.Name]; vm.State != "running" || !read && d.guest == nil {
			return 409, hypervisorapi.Error{Code: "agent_not_connected", Error: "the agent is not connected", RequestId: "r"}
		}
		return 200, hypervisorapi.Pong{Version: "test"}
	})
}
