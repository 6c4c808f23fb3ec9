package pam

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// How long an answer may take, and how many requests a Client has in progress.
const (
	// requestTime is longer than modules delay their answer to a wrong password.
	requestTime = 15 * time.Second
	// turnTime is how long a request waits for its turn in the server.
	turnTime = 2 * time.Second
	// answerTime leaves the server time to say that the others have passed.
	answerTime = turnTime + requestTime + 2*time.Second
	inProgress = 8
)

// ErrNotAsked is in the chain of errors that arose before the stack saw the request. So they are no
// evidence about the password.
var ErrNotAsked = errors.New("the host's authentication stack was not asked")

// Client asks mainstay-pam. It is safe for concurrent use.
type Client struct {
	service string
	slots   chan struct{}
	ask     func(ctx context.Context, q Request) (Response, error)
}

// Socket returns a Client of the mainstay-pam that serves a Unix socket. service is the name of the
// stack's rules, a file in /etc/pam.d.
func Socket(path, service string) *Client {
	return newClient(service, func(ctx context.Context, q Request) (Response, error) { return dial(ctx, path, q) })
}

// Program returns a Client that starts the mainstay-pam at path for each request, which takes the
// privileges that the stack's modules need: for pam_unix, root. confDir replaces /etc/pam.d unless
// it is empty.
func Program(path, service, confDir string) *Client {
	return newClient(
		service, func(ctx context.Context, q Request) (Response, error) { return run(ctx, path, confDir, q) },
	)
}

func newClient(service string, ask func(context.Context, Request) (Response, error)) *Client {
	return &Client{service: service, slots: make(chan struct{}, inProgress), ask: ask}
}

// Authenticate returns the account with a name and a password. The fault is Unauthenticated if the
// stack refuses it, and Unavailable if the stack does not say. Then ErrNotAsked is in its chain
// unless the password was handed over.
//
// The outcome of an attempt whose caller has gone is lost, so callers who count failures pass a
// context that their own caller cannot cancel.
func (c *Client) Authenticate(ctx context.Context, username, password string) (Account, error) {
	q := Request{Op: Authenticate, Service: c.service, Username: username, Password: []byte(password)}
	defer clear(q.Password)
	return c.do(ctx, q)
}

// Lookup returns an account as it is now, with the same faults as Authenticate. Unauthenticated
// means that there is no such account, or that it may not be used now.
func (c *Client) Lookup(ctx context.Context, username string) (Account, error) {
	return c.do(ctx, Request{Op: Groups, Service: c.service, Username: username})
}

func (c *Client) do(ctx context.Context, q Request) (Account, error) {
	if err := q.Check(); err != nil {
		return Account{}, fault.Wrap(fault.Unauthenticated, err, "the host does not accept these credentials")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return Account{}, away(fmt.Errorf("%w: %w", ErrNotAsked, ctx.Err()))
	}
	a, err := c.ask(ctx, q)
	if err != nil {
		return Account{}, away(err)
	}
	cause := fmt.Errorf("%s: %s", a.Error, a.Detail)
	switch a.Error {
	case "":
		return *a.Account, nil
	case Denied:
		return Account{}, fault.Wrap(fault.Unauthenticated, cause, "the host does not accept these credentials")
	case Busy, Unconfigured, Invalid:
		cause = fmt.Errorf("%w: %w", ErrNotAsked, cause)
	}
	return Account{}, away(cause)
}

func away(cause error) error {
	return fault.Wrap(fault.Unavailable, cause, "the host's accounts cannot be checked now; try again later").
		WithCode("host_accounts_unavailable").WithRetryAfter(time.Second)
}

func dial(ctx context.Context, path string, q Request) (Response, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return Response{}, fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := WriteRequest(conn, q); err != nil {
		return Response{}, fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	return ReadResponse(conn)
}

// run asks a process of its own, which is killed when ctx ends.
func run(ctx context.Context, path, confDir string, q Request) (Response, error) {
	var in bytes.Buffer
	if err := WriteRequest(&in, q); err != nil {
		return Response{}, fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	request := in.Bytes()
	defer clear(request)

	cmd := exec.CommandContext(ctx, path, "check", "--confdir", confDir)
	cmd.Stdin = &in
	// Nothing else of the service's environment matters to modules, and it may hold secrets.
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Dir = "/"
	var out bytes.Buffer
	cmd.Stdout = &limited{w: &out, left: maxResponse + 4}
	// A module's child may keep the pipes open.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return Response{}, fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	// A program that has answered and then crashes has answered.
	ended := cmd.Wait()
	a, err := ReadResponse(&out)
	if err != nil {
		return Response{}, fmt.Errorf("%s has not answered: %w", path, errors.Join(ended, ctx.Err(), err))
	}
	return a, nil
}

// limited takes a number of bytes and no more.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errors.New("the answer is too long")
	}
	l.left -= len(p)
	return l.w.Write(p)
}
