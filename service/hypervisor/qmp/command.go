package qmp

import "context"

// Status is how the virtual machine is.
type Status struct {
	// Running is false if the processors stand still.
	Running bool `json:"running"`
	// State is one of QEMU's RunState: running, paused, prelaunch, shutdown,
	// guest-panicked, internal-error, io-error, inmigrate, ...
	State string `json:"status"`
}

// Status asks how the virtual machine is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.Execute(ctx, "query-status", nil, &s)
	return s, err
}

// PowerDown presses the power button. What comes of it is up to the guest:
// EventShutdown, or nothing.
func (c *Client) PowerDown(ctx context.Context) error {
	return c.Execute(ctx, "system_powerdown", nil, nil)
}

// Stop halts the processors of the guest. It is not an error if they are halted.
func (c *Client) Stop(ctx context.Context) error { return c.Execute(ctx, "stop", nil, nil) }

// Cont lets them run again.
func (c *Client) Cont(ctx context.Context) error { return c.Execute(ctx, "cont", nil, nil) }

// Quit ends QEMU without asking the guest. QEMU answers first; it has ended when its
// parent, or the loss of this connection, says so.
func (c *Client) Quit(ctx context.Context) error { return c.Execute(ctx, "quit", nil, nil) }

// IOStatus is how the latest access to a disk ended on which QEMU halts the guest: ok, failed
// or nospace.
type IOStatus struct {
	// Node is the name of the disk's node.
	Node   string
	Status string
}

// IOStatuses asks for those of all disks that a guest has.
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

// PortIsOpen says whether a program in the guest has the port open that the character
// device of a name leads to.
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
