package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

const (
	// maxSocketMessage is the largest message that a socket takes, in bytes.
	maxSocketMessage = 1 << 20
	// socketPing finds out that the other side has gone, and keeps proxies from ending a
	// socket on which nothing happens.
	socketPing = 25 * time.Second
	// socketWrite is how long a viewer may take for one message.
	socketWrite = 15 * time.Second
)

// openConsole opens the serial console.
func (a *API) openConsole(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	if err := a.noteOpening(r); err != nil {
		return err
	}
	return a.serveConsole(w, r, r.PathValue("id"))
}

// noteOpening writes the audit entry of whoever opens a console or a screen. With a ticket, it was
// written when the ticket was issued.
func (a *API) noteOpening(r *http.Request) error {
	if r.URL.Query().Get("ticket") != "" {
		return nil
	}
	found, err := a.store.VM(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return a.store.Note(r.Context(), openingOf(&found))
}

// openScreen opens the screen.
func (a *API) openScreen(w http.ResponseWriter, r *http.Request, _ caller.Caller) error {
	found, err := a.store.VM(r.Context(), r.PathValue("id"))
	if err == nil {
		err = a.noteOpening(r)
	}
	if err != nil {
		return err
	}
	return a.serveChannel(w, r, &found, backend.ScreenChannel)
}

// serveConsole answers with a socket to the VM's serial console.
func (a *API) serveConsole(w http.ResponseWriter, r *http.Request, id string) error {
	found, err := a.store.VM(r.Context(), id)
	if err != nil {
		return err
	}
	if found.Backend == backend.Sandbox {
		return a.serveChannel(w, r, &found, backend.ConsoleChannel) // a shell of its own for each
	}
	console, err := a.machines.Get(id).Console(&found)
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }() // it never fails
	return a.serveSocket(w, r, console)
}

// serveChannel answers with a socket to a channel of the VM that is this caller's alone.
func (a *API) serveChannel(w http.ResponseWriter, r *http.Request, found *record.VM, channel backend.Channel) error {
	instance, _ := a.machines.Get(found.ID).Process()
	if instance == nil {
		return fault.New(fault.Conflict,
			"the VM is %s; it has a %s while it runs", found.State, channel).WithCode("wrong_state")
	}
	stream, err := instance.Dial(r.Context(), channel)
	if err != nil {
		return err
	}
	return a.serveSocket(w, r, stream)
}

// serveSocket copies between a WebSocket and a stream until one of them ends.
func (a *API) serveSocket(w http.ResponseWriter, r *http.Request, stream io.ReadWriteCloser) error {
	if err := httpserve.ReserveStream(r); err != nil {
		return errors.Join(err, stream.Close())
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return stream.Close() // the library has answered
	}
	conn.SetReadLimit(maxSocketMessage)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	ended := make(chan struct{}, 3)
	var work sync.WaitGroup
	for _, part := range []func() error{
		func() error { return copyToSocket(ctx, conn, stream) },
		func() error { return copyFromSocket(ctx, stream, conn) },
		func() error { return keepAlive(ctx, conn) },
	} {
		work.Go(func() {
			defer func() { ended <- struct{}{} }()
			_ = routine.Call(a.log, "socket", part) // either side has ended, which is what there is to know
		})
	}
	select {
	case <-ended:
	case <-a.machines.Ending().Done():
	}
	_ = stream.Close() // so that reading from it ends
	// The end is said before the context ends, which would cut the connection off.
	_ = conn.Close(websocket.StatusNormalClosure, "it has ended") // the other side may be gone
	cancel()
	work.Wait()
	return nil
}

func copyToSocket(ctx context.Context, conn *websocket.Conn, from io.Reader) error {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			ctx, cancel := context.WithTimeout(ctx, socketWrite)
			writeErr := conn.Write(ctx, websocket.MessageBinary, buffer[:n])
			cancel()
			if writeErr != nil {
				return writeErr
			}
		}
		if err != nil {
			return err
		}
	}
}

func copyFromSocket(ctx context.Context, to io.Writer, conn *websocket.Conn) error {
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if _, err := to.Write(message); err != nil {
			return err
		}
	}
}

func keepAlive(ctx context.Context, conn *websocket.Conn) error {
	ticker := time.NewTicker(socketPing)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if err := conn.Ping(ctx); err != nil {
				return err
			}
		}
	}
}
