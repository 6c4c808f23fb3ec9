//go:build linux

package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// relayLimit is how long Relay waits for a starting agent.
const relayLimit = 30 * time.Second

// Relay copies data between a stream and the agent that serves a Unix socket, in both directions,
// until either side ends.
func Relay(ctx context.Context, path string, in io.Reader, out io.Writer) error {
	conn, err := dialAgent(ctx, path)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(conn, in)
		ended <- err
	}()
	go func() {
		_, err := io.Copy(out, conn)
		ended <- err
	}()
	return <-ended // the other one ends with the process, or with its side of the stream
}

// dialAgent waits for the socket.
func dialAgent(ctx context.Context, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, relayLimit)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("no agent serves %s: %w", path, err)
		}
	}
}
