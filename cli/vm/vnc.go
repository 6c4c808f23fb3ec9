package vm

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
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

func (s commands) vnc() *cobra.Command {
	var listen string
	cmd := s.Command(verb.Verb{
		Use:   "vnc VM",
		Short: "Open a local port for a VNC viewer to the VM's screen",
		Long: `Open a local port through which a VNC viewer shows the VM's screen, until Ctrl-C. Anyone who can reach the port can use
the screen, so only this machine can, unless --listen says otherwise.`,
		Example: "  mainstay vm vnc web\n  mainstay vm vnc web --listen 127.0.0.1:5901",
	}, func(ctx context.Context, c *daemon.Call) error {
		id, err := daemon.VMID(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		path := "v1/vms/" + id + "/vnc"
		// Connect once first, so that a VM without a screen is reported here and not in the viewer.
		first, err := daemon.Socket(ctx, c, path)
		if err != nil {
			return err
		}
		_ = first.CloseNow() // no data was sent
		return forward(ctx, c, listen, path)
	})
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "local address and port; port 0 is any that is free")
	return cmd
}

// forward gives every connection to a local port its own socket to the screen.
func forward(ctx context.Context, c *daemon.Call, listen, path string) error {
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
			if err := relay(ctx, c, viewer, path); err != nil && ctx.Err() == nil {
				c.Note("The viewer %s: %s", viewer.RemoteAddr(), output.Escape(err.Error()))
			}
		})
	}
}

// relay copies between a viewer and its socket until one of them ends.
func relay(ctx context.Context, c *daemon.Call, viewer net.Conn, path string) error {
	defer func() { _ = viewer.Close() }() // the data has arrived, or nobody needs it
	conn, err := daemon.Socket(ctx, c, path)
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
