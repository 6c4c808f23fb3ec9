package qmp

import "context"

// Status is the state of the virtual machine.
type Status struct {
	// Running is false if the processors are stopped.
	Running bool `json:"running"`
	// State is one of QEMU's RunState: running, paused, prelaunch, shutdown,
	// guest-panicked, internal-error, io-error, inmigrate, ...
	State string `json:"status"`
}

// Status queries the state of the virtual machine.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.Execute(ctx, "query-status", nil, &s)
	return s, err
}

// PowerDown presses the power button. The guest decides what happens: EventShutdown, or nothing.
func (c *Client) PowerDown(ctx context.Context) error {
	return c.Execute(ctx, "system_powerdown", nil, nil)
}

// Reset restarts the guest without asking it, and emits EventReset.
func (c *Client) Reset(ctx context.Context) error { return c.Execute(ctx, "system_reset", nil, nil) }

// Stop stops the guest's processors. It is not an error if they are stopped already.
func (c *Client) Stop(ctx context.Context) error { return c.Execute(ctx, "stop", nil, nil) }

// Cont resumes the guest's processors.
func (c *Client) Cont(ctx context.Context) error { return c.Execute(ctx, "cont", nil, nil) }

// Quit ends QEMU without asking the guest. QEMU responds first; it has ended once its parent is
// told or this connection is lost.
func (c *Client) Quit(ctx context.Context) error { return c.Execute(ctx, "quit", nil, nil) }

// IOStatus is the result of the latest disk access for which QEMU stops the guest on errors: ok,
// failed or nospace.
type IOStatus struct {
	// Node is the name of the disk's node.
	Node   string
	Status string
}

// IOStatuses returns the IOStatus of all disks of the guest.
func (c *Client) IOStatuses(ctx context.Context) ([]IOStatus, error) {
	var devices []struct {
		Status   string `json:"io-status"`
		Inserted struct {
			Node string `json:"node-name"`
		} `json:"inserted"`
	}
	if err := c.Execute(ctx, "query-block", nil, &devices); err != nil {
		return nil, err
	}
	all := make([]IOStatus, len(devices))
	for i, d := range devices {
		all[i] = IOStatus{Node: d.Inserted.Node, Status: d.Status}
	}
	return all, nil
}

// PortIsOpen reports whether a program in the guest has the port open that belongs to the named
// character device.
func (c *Client) PortIsOpen(ctx context.Context, name string) (bool, error) {
	var devices []struct {
		Name string `json:"label"`
		Open bool   `json:"frontend-open"`
	}
	if err := c.Execute(ctx, "query-chardev", nil, &devices); err != nil {
		return false, err
	}
	for _, d := range devices {
		if d.Name == name {
			return d.Open, nil
		}
	}
	return false, nil
}
