package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/mainstay-infra/mainstay/kit/httpserve"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	// maxMessage is the largest message that a socket accepts, in bytes.
	maxMessage = 1 << 20
	// pingPeriod is how often a socket is pinged. It keeps proxies from closing an idle socket. A
	// client that has not answered by the next ping is considered gone.
	pingPeriod = 25 * time.Second
	// writeLimit is the time limit for sending one message.
	writeLimit = 15 * time.Second
	// pieceSize is the most bytes of the stream in one message. It is below the default limit of
	// client libraries.
	pieceSize = 16 << 10
)

// Options refine Serve.
type Options struct {
	// Log receives panics of the copying goroutines. Nil means slog.Default.
	Log *slog.Logger
	// Greeting is sent first, as a text message. All others are binary. Empty means no greeting.
	Greeting []byte
}

// Serve upgrades a request to a WebSocket that carries stream. It ends when either side ends, the
// client does not answer pings or takes too long for a message, or until ends. until is the context
// of the service, which outlives the request, or one that also ends with the caller's permission.
// Serve closes the stream.
//
// If Serve returns an error, there was no socket, and the caller must send the error as the
// response. CheckUpgrade decides which requests are refused, and httpserve.ReserveStream how many
// sockets there may be.
func Serve(
	until context.Context, w http.ResponseWriter, r *http.Request, stream io.ReadWriteCloser, o Options,
) error {
	err := CheckUpgrade(r)
	if err == nil {
		err = httpserve.ReserveStream(r)
	}
	if err != nil {
		return errors.Join(err, stream.Close())
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		_ = stream.Close() // nobody will use it
		return nil         // the client has disconnected, or the library has responded
	}
	conn.SetReadLimit(maxMessage)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	ended := make(chan struct{}, 3)
	var work sync.WaitGroup
	for _, part := range []func() error{
		func() error { return copyToSocket(ctx, conn, stream, o.Greeting) },
		func() error { return copyFromSocket(ctx, stream, conn) },
		func() error { return keepAlive(ctx, conn) },
	} {
		work.Go(func() {
			defer func() { ended <- struct{}{} }()
			_ = routine.Call(o.Log, "socket", part) // either side has ended; nothing else to report
		})
	}
	select {
	case <-ended:
	case <-until.Done():
	}
	_ = stream.Close() // unblocks reading from it
	// Send the close message before canceling the context, which cuts the connection.
	_ = conn.Close(websocket.StatusNormalClosure, "it has ended") // the other side may be gone
	cancel()
	work.Wait()
	return nil
}

func copyToSocket(ctx context.Context, conn *websocket.Conn, from io.Reader, greeting []byte) error {
	if len(greeting) > 0 {
		if err := send(ctx, conn, websocket.MessageText, greeting); err != nil {
			return err
		}
	}
	buffer := make([]byte, pieceSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if err := send(ctx, conn, websocket.MessageBinary, buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

func send(ctx context.Context, conn *websocket.Conn, kind websocket.MessageType, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	return conn.Write(ctx, kind, message)
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
	ticker := time.NewTicker(pingPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			if err := ping(ctx, conn); err != nil {
				return err
			}
		}
	}
}

func ping(ctx context.Context, conn *websocket.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingPeriod)
	defer cancel()
	return conn.Ping(ctx)
}
