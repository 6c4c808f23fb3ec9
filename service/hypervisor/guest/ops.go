package guest

import (
	"context"
	"net"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// Ping waits for a response of the agent. It fails if the secret is wrong.
func (c *Client) Ping(ctx context.Context) error {
	var done struct{}
	return c.ask(ctx, wire.OpPing, struct{}{}, &done)
}

// Network returns the guest's network interfaces as it reports them, at most 1024. Names are
// printable, MACs and addresses are well formed. Nothing else is verified.
func (c *Client) Network(ctx context.Context) ([]wire.Interface, error) {
	var n wire.Network
	if err := c.ask(ctx, wire.OpNetwork, struct{}{}, &n); err != nil {
		return nil, err
	}
	if len(n.Interfaces) > 1024 {
		return nil, c.breach(violation("%d network interfaces", len(n.Interfaces)))
	}
	for i := range n.Interfaces {
		it := &n.Interfaces[i]
		it.Name = printable(it.Name, 32)
		if it.MAC == "" {
			continue
		}
		mac, err := net.ParseMAC(it.MAC)
		if err != nil {
			return nil, c.breach(violation("an interface with a MAC that is none"))
		}
		it.MAC = mac.String()
	}
	return n.Interfaces, nil
}

// Shutdown asks the guest to stop its services and power off (wire.PowerOff) or reboot
// (wire.Reboot). It returns when the guest has started to.
func (c *Client) Shutdown(ctx context.Context, mode string) error {
	var done struct{}
	return c.ask(ctx, wire.OpShutdown, wire.Shutdown{Mode: mode}, &done)
}

// Freeze flushes and freezes the guest's mounted disk file systems and returns their number. They
// thaw with Thaw, when the session ends, and after limit (1 s to 10 min).
func (c *Client) Freeze(ctx context.Context, limit time.Duration) (int, error) {
	var n wire.Frozens
	err := c.ask(ctx, wire.OpFreeze, wire.Freeze{LimitMS: milliseconds(limit)}, &n)
	return n.FileSystems, err
}

// Thaw ends a freeze and returns the number of file systems that it thawed. If there are fewer than
// Freeze returned, the limit was reached: a disk image made since may be inconsistent.
func (c *Client) Thaw(ctx context.Context) (int, error) {
	var n wire.Frozens
	err := c.ask(ctx, wire.OpThaw, struct{}{}, &n)
	return n.FileSystems, err
}

// RotateSecret gives the guest a new secret, which this client uses from then on. stored reports
// whether the guest still knows it after its agent restarts. Other calls wait until it is done.
// After ErrLost or the end of ctx, the session is over, and either secret may be the right one.
func (c *Client) RotateSecret(ctx context.Context, secret string) (stored bool, err error) {
	var done wire.Rotated
	err = c.changeSecret(ctx, wire.OpRotateSecret, secret, wire.RotateSecret{New: secret}, &done)
	return done.Stored, err
}

// Personalize gives a guest that began with the memory of another one an identity of its own, and
// a new secret as RotateSecret does.
func (c *Client) Personalize(ctx context.Context, p wire.Personalize) (stored bool, err error) {
	var done wire.Rotated
	err = c.changeSecret(ctx, wire.OpPersonalize, p.Secret, p, &done)
	return done.Stored, err
}

// changeSecret makes a call after which the guest has another secret. Other calls wait meanwhile.
func (c *Client) changeSecret(ctx context.Context, op, secret string, body, done any) error {
	if err := wire.ValidSecret(secret); err != nil {
		return err
	}
	if err := c.take(ctx, c.slots); err != nil {
		return err
	}
	if err := c.take(ctx, c.turn); err != nil {
		<-c.slots
		return err
	}
	defer func() { <-c.turn }()
	call, err := c.openInTurn(ctx, op, body)
	if err != nil {
		return err
	}
	if err := c.wait(call, done); err != nil {
		if ctx.Err() != nil {
			c.end(err)
		}
		return err
	}
	c.secret = secret
	return nil
}
