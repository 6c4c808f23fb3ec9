package guest

import (
	"context"
	"net"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

// Ping waits for an answer of the agent, which the secret must fit.
func (c *Client) Ping(ctx context.Context) error {
	var done struct{}
	return c.ask(ctx, wire.OpPing, struct{}{}, &done)
}

// Network returns the interfaces of the guest as it tells them, at most 1024. Names are
// printable, MACs and addresses well formed; more is not proved.
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

// Shutdown asks the guest to end its services and power off (wire.PowerOff) or start anew
// (wire.Reboot). It returns when the guest has begun.
func (c *Client) Shutdown(ctx context.Context, mode string) error {
	var done struct{}
	return c.ask(ctx, wire.OpShutdown, wire.Shutdown{Mode: mode}, &done)
}

// Freeze stops writing to the guest's mounted disk file systems, after what is in memory
// was written, and returns how many there are. They thaw with Thaw, when the session ends,
// and after limit (1 s to 10 min).
func (c *Client) Freeze(ctx context.Context, limit time.Duration) (int, error) {
	var n wire.Frozens
	err := c.ask(ctx, wire.OpFreeze, wire.Freeze{LimitMS: milliseconds(limit)}, &n)
	return n.FileSystems, err
}

// Thaw ends a freeze and returns how many file systems it thawed. Fewer than Freeze said
// means that the limit was over: a disk image made meanwhile may not be consistent.
func (c *Client) Thaw(ctx context.Context) (int, error) {
	var n wire.Frozens
	err := c.ask(ctx, wire.OpThaw, struct{}{}, &n)
	return n.FileSystems, err
}

// RotateSecret gives the guest a new secret, which this client uses from then on. Stored
// says whether the guest will know it after its agent starts anew. Other calls wait
// meanwhile. After ErrLost, or the end of ctx, either secret may be the right one: the
// session is over then.
func (c *Client) RotateSecret(ctx context.Context, secret string) (stored bool, err error) {
	if err := wire.ValidSecret(secret); err != nil {
		return false, err
	}
	if err := c.take(ctx, c.slots); err != nil {
		return false, err
	}
	if err := c.take(ctx, c.turn); err != nil {
		<-c.slots
		return false, err
	}
	defer func() { <-c.turn }()
	call, err := c.openInTurn(ctx, wire.OpRotateSecret, wire.RotateSecret{New: secret})
	if err != nil {
		return false, err
	}
	var done wire.Rotated
	if err := c.wait(call, &done); err != nil {
		if ctx.Err() != nil {
			c.end(err)
		}
		return false, err
	}
	c.secret = secret
	return done.Stored, nil
}
