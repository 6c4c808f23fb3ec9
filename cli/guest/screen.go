package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// VNC returns the command vnc.
func (t Reach[A]) VNC() *cobra.Command {
	var listen string
	cmd := t.Command(verb.Verb{
		Use:   "vnc VM",
		Short: "Open a local port for a VNC viewer to the VM's screen",
		Long: `Open a local port through which a VNC viewer shows the VM's screen, until Ctrl-C. Anyone who can reach the port can use
the screen, so only this machine can, unless --listen says otherwise.`,
		Example: "  " + t.Group + " vnc web\n  " + t.Group + " vnc web --listen 127.0.0.1:5901",
	}, func(ctx context.Context, c *verb.Call[A]) error {
		// Connect once first, so that a VM without a screen is reported here and not in the viewer.
		first, err := t.socket(ctx, c, c.Args[0], t.Screen)
		if err != nil {
			return err
		}
		_ = first.CloseNow() // no data was sent
		return t.forward(ctx, c, listen)
	})
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "local address and port; port 0 is any that is free")
	return cmd
}

// forward gives every connection to a local port its own socket to the screen.
func (t Reach[A]) forward(ctx context.Context, c *verb.Call[A], listen string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	defer func() { _ = listener.Close() }() // ends Accept, here or above
	if err := c.Out.Value(map[string]string{"address": listener.Addr().String()}); err != nil {
		return err
	}
	c.Note("Point a VNC viewer at it; Ctrl-C ends this.")
	var viewers sync.WaitGroup
	defer viewers.Wait()
	for {
		viewer, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		viewers.Go(func() {
			if err := t.relay(ctx, c, viewer); err != nil && ctx.Err() == nil {
				c.Note("The viewer %s: %s", viewer.RemoteAddr(), output.Escape(err.Error()))
			}
		})
	}
}

// relay copies between a viewer and its socket until one of them ends.
func (t Reach[A]) relay(ctx context.Context, c *verb.Call[A], viewer net.Conn) error {
	defer func() { _ = viewer.Close() }() // the data has arrived, or nobody needs it
	conn, err := t.socket(ctx, c, c.Args[0], t.Screen)
	if err != nil {
		return err
	}
	screen := websocket.NetConn(ctx, conn, websocket.MessageBinary)
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(screen, viewer)
		_ = screen.Close() // ends the other direction
	})
	defer context.AfterFunc(ctx, func() { _ = viewer.Close() })()
	_, err = io.Copy(viewer, screen)
	_, _ = viewer.Close(), screen.Close()
	copying.Wait()
	if errors.Is(err, net.ErrClosed) || websocket.CloseStatus(err) == websocket.StatusNormalClosure {
		return nil
	}
	return err
}
