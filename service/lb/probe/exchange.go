package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// dialer is for checks that connect directly. Keep-alive would cost system calls and
// never come to pass.
var dialer = net.Dialer{KeepAlive: -1}

const (
	maxAnswer  = 64 << 10               // bytes read of an HTTP answer
	drainTime  = 100 * time.Millisecond // to read what follows the header
	maxReason  = 120                    // bytes
	maxInterim = 5                      // 1xx answers before the real one
)

// exchange probes once, within the deadline of ctx. The text is why the backend is
// healthy; a failure is an error.
func (p *Prober) exchange(ctx context.Context, c Check) (string, error) {
	dial := p.options.Dial
	if c.Direct {
		dial = dialDirect
	}
	conn, err := dial(ctx, c.ID, c.Address)
	if err != nil {
		return "", err
	}
	if c.Type == TCP {
		closeWithReset(conn)
		return "connected", nil
	}
	defer closeWithReset(conn)
	// Closing is not enough to end a blocked read of every kind of connection.
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return get(ctx, conn, c)
}

func dialDirect(ctx context.Context, _ ID, address netip.AddrPort) (net.Conn, error) {
	conn, err := dialer.DialTCP(ctx, "tcp", netip.AddrPort{}, address)
	if err != nil {
		return nil, err // and no nil pointer inside of the interface
	}
	return conn, nil
}

// closeWithReset closes a connection without TIME_WAIT at either end.
func closeWithReset(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = c.SetLinger(0)
	}
	conn.Close()
}

// get asks over an open connection. Only the status counts: redirects are not
// followed and the body is not looked at.
func get(ctx context.Context, raw net.Conn, c Check) (string, error) {
	conn := raw
	if c.Type == HTTPS {
		secured := tls.Client(raw, &tls.Config{
			InsecureSkipVerify: true, // see HTTPS
			ServerName:         serverName(c.Host),
			NextProtos:         []string{"http/1.1"},
		})
		if err := secured.HandshakeContext(ctx); err != nil {
			return "", fmt.Errorf("TLS handshake: %w", err)
		}
		conn = secured
	}
	request, err := newRequest(ctx, c)
	if err != nil {
		return "", err
	}
	if err := request.Write(conn); err != nil {
		return "", err
	}
	response, err := readResponse(bufio.NewReader(io.LimitReader(conn, maxAnswer)), request)
	if err != nil {
		return "", fmt.Errorf("no HTTP answer: %w", err)
	}
	if !c.Status.contains(response.StatusCode) {
		return "", fmt.Errorf("status %d, want %s", response.StatusCode, c.Status)
	}
	// A server that is still writing would log the reset as a failure, so what comes
	// soon is read; the verdict no longer depends on it.
	if deadline, ok := ctx.Deadline(); ok && conn.SetReadDeadline(earlier(deadline, time.Now().Add(drainTime))) == nil {
		_, _ = io.Copy(io.Discard, response.Body)
	}
	return "status " + strconv.Itoa(response.StatusCode), nil
}

func newRequest(ctx context.Context, c Check) (*http.Request, error) {
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodGet,
		c.Type.String()+"://"+c.Address.String()+c.Path,
		nil,
	)
	if err != nil {
		return nil, err
	}
	request.Host = c.Host
	request.Close = true
	request.Header.Set("User-Agent", "mainstay-lb")
	return request, nil
}

// readResponse skips interim answers (1xx).
func readResponse(r *bufio.Reader, request *http.Request) (*http.Response, error) {
	for range maxInterim {
		response, err := http.ReadResponse(r, request)
		if err != nil || response.StatusCode >= 200 {
			return response, err
		}
	}
	return nil, errors.New("nothing but 1xx")
}

// serverName is the name for TLS in a Host header: none if it is an address.
func serverName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ""
	}
	return host
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// timedOut says whether the probe failed for want of an answer.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// failureReason puts err into a few words for an operator. What a backend sent may be
// in it: it is cut and made printable.
func failureReason(err error, timeout time.Duration) string {
	if timedOut(err) {
		return "timeout after " + timeout.String()
	}
	text := err.Error()
	var system *os.SyscallError
	var number syscall.Errno
	switch {
	case errors.As(err, &system):
		text = system.Error() // "connect: connection refused", without the addresses
	case errors.As(err, &number):
		text = number.Error()
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		text = strings.Replace(text, "unexpected EOF", "connection closed", 1)
		text = strings.Replace(text, "EOF", "connection closed", 1)
	}
	return printable(text)
}

func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason], "") + "..."
}
