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

// dialer is for checks that connect directly. Keep-alive is off: it would cost system calls, and
// probes end before it takes effect.
var dialer = net.Dialer{KeepAlive: -1}

const (
	maxAnswer  = 64 << 10               // bytes read of an HTTP response
	drainTime  = 100 * time.Millisecond // for reading the body
	maxReason  = 120                    // bytes
	maxInterim = 5                      // maximum number of 1xx responses before the final one
)

// exchange runs one probe within the deadline of ctx. It returns why the backend is healthy, or an
// error.
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
	// Closing the connection does not end a blocked read on every type of connection.
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
		return nil, err // not a nil pointer in the interface
	}
	return conn, nil
}

// closeWithReset closes a connection without TIME_WAIT on either side.
func closeWithReset(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = c.SetLinger(0)
	}
	conn.Close()
}

// get sends the request over an open connection. Only the status counts: get does not follow
// redirects and ignores the body.
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
	// A server that is still writing would log the reset as a failure, so read what arrives soon.
	// The result no longer depends on it.
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

// readResponse skips interim responses (1xx).
func readResponse(r *bufio.Reader, request *http.Request) (*http.Response, error) {
	for range maxInterim {
		response, err := http.ReadResponse(r, request)
		if err != nil || response.StatusCode >= 200 {
			return response, err
		}
	}
	return nil, errors.New("nothing but 1xx")
}

// serverName returns the name in a Host header for TLS, or "" if it is an address.
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

// timedOut reports whether the probe failed because of a timeout.
func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// failureReason describes err in a few words for an operator. The text may contain data from the
// backend, so it is shortened and made printable.
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
