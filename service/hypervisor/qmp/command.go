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

// Stop halts the processors of the guest. It is no error if they are halted.
func (c *Client) Stop(ctx context.Context) error { return c.Execute(ctx, "stop", nil, nil) }

// Cont lets them run again.
func (c *Client) Cont(ctx context.Context) error { return c.Execute(ctx, "cont", nil, nil) }

// Quit ends QEMU without asking the guest. QEMU answers first; it has ended when its
// parent, or the loss of this connection, says so.
func (c *Client) Quit(ctx context.Context) error { return c.Execute(ctx, "quit", nil, nil) }
