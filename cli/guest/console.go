package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/terminal"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// detachKey is Ctrl-], as in telnet: few programs in a guest use it.
const detachKey = 0x1d

// Console returns the command console.
func (t Reach[A]) Console() *cobra.Command {
	return t.Command(verb.Verb{
		Use:   "console VM",
		Short: "Attach a VM's serial console to this terminal",
		Long: `Attach a VM's serial console to this terminal. Ctrl-] detaches; everything else goes to the
guest. The most recent output is shown first.

Without a terminal, standard input goes to the guest unchanged.`,
		Example: "  " + t.Group + " console web\n  " + t.Group + " console web < script.txt > log.txt",
	}, func(ctx context.Context, c *verb.Call[A]) error {
		detached, err := t.Attach(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		if detached {
			c.Note("Detached; '%s console %s' comes back.", t.Group, c.Args[0])
		} else {
			c.Note("The console has ended.")
		}
		return nil
	})
}

// errDetached means that the user ended an attachment.
var errDetached = errors.New("detached")

// Attach shows a VM's console until the VM or the user ends it. detached reports whether it was the user.
func (t Reach[A]) Attach(ctx context.Context, c *verb.Call[A], vm string) (detached bool, err error) {
	conn, err := t.socket(ctx, c, vm, "console")
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.CloseNow() }() // already closed, or useless
	in := c.Cmd.InOrStdin()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	isTerminal := output.IsTerminal(in)
	if isTerminal {
		c.Note("Attached to %s; Ctrl-] detaches.", vm)
		restore, err := terminal.Raw(in.(*os.File))
		if err != nil {
			return false, fmt.Errorf("put the terminal into raw mode: %w", err)
		}
		defer func() {
			err = errors.Join(err, restore())
			_, _ = io.WriteString(c.Cmd.ErrOrStderr(), "\n") // below the guest's last line
		}()
	}
	// Reading from a terminal cannot be interrupted; the process ends first.
	go func() { cancel(typed(ctx, conn, in, isTerminal)) }()
	err = printed(ctx, conn, c.Cmd.OutOrStdout())
	switch {
	case errors.Is(context.Cause(ctx), errDetached):
		return true, nil
	case ctx.Err() != nil && context.Cause(ctx) == ctx.Err():
		return true, nil // Ctrl-C without a terminal, or the program was asked to stop
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case websocket.CloseStatus(err) == websocket.StatusNormalClosure:
		return false, nil
	}
	return false, fmt.Errorf("the connection to the console broke: %w", err)
}

// printed copies the guest's output until the socket ends.
func printed(ctx context.Context, conn *websocket.Conn, w io.Writer) error {
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if _, err := w.Write(message); err != nil {
			return err
		}
	}
}

// typed copies the user's input. After the end of an input that is not a terminal, it waits for the
// rest of the guest's output.
func typed(ctx context.Context, conn *websocket.Conn, in io.Reader, isTerminal bool) error {
	buffer := make([]byte, 4096)
	for {
		n, err := in.Read(buffer)
		keys, detach := buffer[:n], false
		if isTerminal {
			keys, _, detach = bytes.Cut(keys, []byte{detachKey})
		}
		if len(keys) > 0 {
			if err := conn.Write(ctx, websocket.MessageBinary, keys); err != nil {
				<-ctx.Done() // the reading side has the reason
				return ctx.Err()
			}
		}
		switch {
		case detach:
			return errDetached
		case err != nil && isTerminal:
			return errDetached // the terminal was closed
		case errors.Is(err, io.EOF):
			<-ctx.Done()
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read the standard input: %w", err)
		}
	}
}
