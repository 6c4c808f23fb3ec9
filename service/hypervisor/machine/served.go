package machine

import "github.com/mainstay-infra/mainstay/kit/fault"

// Serve notes that a client serves the VM's served disk, until end is called. It fails with a conflict
// if another client does.
func (m *Machine) Serve() (end func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.served {
		return nil, fault.New(fault.Conflict, "the VM's disk is being served already").WithCode("disk_served")
	}
	m.served = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.served = false
	}, nil
}

// Served reports whether a client serves the VM's served disk.
func (m *Machine) Served() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.served
}
