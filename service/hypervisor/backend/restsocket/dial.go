//go:build linux

package restsocket

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// vsockLimit is the timeout for forwarding a connection to the guest, whose processors may be
// paused.
const vsockLimit = 10 * time.Second

// connectGuest asks the program that listens on a hybrid vsock to forward the connection to a port
// of the guest. It reads none of the guest's own bytes.
func connectGuest(ctx context.Context, conn net.Conn, port uint32) error {
	ctx, cancel := context.WithTimeout(ctx, vsockLimit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(conn, "CONNECT %d\n", port); err != nil {
		return err
	}
	answer, err := readLine(conn)
	if !stop() {
		return ctx.Err()
	}
	if err != nil {
		return fault.Wrap(
			fault.Unavailable, err, "nothing in the guest listens on vsock port %d yet", port,
		).WithRetryAfter(time.Second)
	}
	if !strings.HasPrefix(answer, "OK ") {
		return fmt.Errorf("the VM's vsock answered %q instead of OK", printable(answer))
	}
	return nil
}

// readLine reads a short line byte by byte, since the guest's data follows it.
func readLine(conn net.Conn) (string, error) {
	const longest = 32
	var line []byte
	for len(line) < longest {
		var b [1]byte
		if _, err := conn.Read(b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	return string(line), nil
}

// printable returns a program's text in a form that is safe to show.
func printable(text string) string {
	const longest = 1000
	if len(text) > longest {
		text = text[:longest] + "..."
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?")))
}
