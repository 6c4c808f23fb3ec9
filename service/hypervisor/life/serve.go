package life

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/machine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// ServeDisk returns the stream to the process of a VM that reads its served disk. Reading and writing
// wait until the process connects, which it does when the VM starts. The caller must close the stream.
func (l *Life) ServeDisk(ctx context.Context, id string) (io.ReadWriteCloser, error) {
	r, err := l.store.VM(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.Spec.V.ServedDisk {
		return nil, fault.New(fault.Conflict, "the VM was made without served_disk").WithCode("no_served_disk")
	}
	if r.State.HasProcess() {
		return nil, fault.New(fault.Conflict,
			"the VM is %s; its disk must be served before it starts", r.State).WithCode("wrong_state")
	}
	end, err := l.machines.Get(id).Serve()
	if err != nil {
		return nil, err
	}
	if err := l.store.Note(ctx, audit.Entry{Action: "vm.serve_disk", Target: r.ID, Tenant: r.Tenant, Message: r.Name}); err != nil {
		end()
		return nil, err
	}
	listener, err := l.host.ListenServed(&r)
	if err != nil {
		end()
		if errors.Is(err, os.ErrNotExist) { // it was deleted a moment ago
			return nil, fault.New(fault.NotFound, "there is no such VM")
		}
		return nil, err
	}
	s := &servedDisk{listener: listener, end: end, up: make(chan struct{})}
	l.machines.Go("served disk", s.accept)
	return s, nil
}

// checkServed returns a conflict if a VM's disk would be missing.
func checkServed(m *machine.Machine, r *record.VM) error {
	if r.Spec.V.ServedDisk && !m.Served() {
		return fault.New(fault.Conflict,
			"nobody serves the VM's disk; open GET /v1/vms/{id}/served-disk before the start").WithCode("disk_not_served")
	}
	return nil
}

// servedDisk is a stream to the one process that connects.
type servedDisk struct {
	listener net.Listener
	end      func()
	once     sync.Once

	up   chan struct{} // closed when conn or err is set
	conn net.Conn
	err  error
}

func (s *servedDisk) accept() {
	defer close(s.up)
	s.conn, s.err = s.listener.Accept()
}

func (s *servedDisk) Read(p []byte) (int, error) {
	if <-s.up; s.err != nil {
		return 0, s.err
	}
	return s.conn.Read(p)
}

func (s *servedDisk) Write(p []byte) (int, error) {
	if <-s.up; s.err != nil {
		return 0, s.err
	}
	return s.conn.Write(p)
}

// Close ends the stream, and gives the disk free for another client.
func (s *servedDisk) Close() (err error) {
	s.once.Do(func() {
		err = s.listener.Close()
		if <-s.up; s.conn != nil {
			err = errors.Join(err, s.conn.Close())
		}
		s.end()
	})
	return err
}
