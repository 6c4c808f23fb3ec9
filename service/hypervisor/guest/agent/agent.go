//go:build linux

package agent

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/wire"
)

const (
	maxCalls   = 2 * wire.MaxCalls // open in a session; the host opens half as many
	wrongFree  = 3                 // wrong secrets in a minute that are answered at once
	wrongDelay = time.Second

	maxPortPause = 200 * time.Millisecond // until a port without a host is read again
)

// Config configures an Agent. SecretFile and Log are required.
type Config struct {
	Version    string
	SecretFile string // of mode 0600, one line
	Log        *slog.Logger
	// Mounts lists the file systems that can be frozen; those of this guest if nil.
	Mounts func() ([]Mount, error)
	// Shutdown starts to power off or reboot; nil: this guest.
	Shutdown func(mode string) error
}

// Agent serves the daemon's requests in a guest.
type Agent struct {
	config  Config
	freezer freezer
	running sync.WaitGroup // calls

	mu     sync.Mutex
	secret [sha256.Size]byte // its hash

	wrong chan guesses // of capacity one; who took it may refuse the next
}

// guesses counts the wrong secrets within a minute.
type guesses struct {
	count int
	since time.Time
}

// New returns an Agent with the secret in the file.
func New(c Config) (*Agent, error) {
	secret, err := readSecret(c.SecretFile)
	if err != nil {
		return nil, err
	}
	if c.Mounts == nil {
		c.Mounts = diskMounts
	}
	if c.Shutdown == nil {
		c.Shutdown = func(mode string) error { return shutdown(mode, c.Log) }
	}
	a := &Agent{
		config:  c,
		secret:  sha256.Sum256([]byte(secret)),
		freezer: freezer{log: c.Log},
		wrong:   make(chan guesses, 1),
	}
	a.wrong <- guesses{}
	return a, nil
}

// Wait waits until everything that ended sessions were running has ended.
func (a *Agent) Wait() { a.running.Wait() }

func readSecret(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("secret file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 || !info.Mode().IsRegular() || info.Size() > 2*wire.MaxSecret {
		return "", fmt.Errorf(
			"secret file %s: must be a small file that nobody else can read (chmod 600), not %v of %d bytes", path,
			info.Mode(), info.Size(),
		)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("secret file: %w", err)
	}
	secret := strings.TrimSpace(string(b))
	if err := wire.ValidSecret(secret); err != nil {
		return "", fmt.Errorf("secret file %s: %w", path, err)
	}
	return secret, nil
}

// authorize checks a secret. After several wrong ones, it delays the refusal of each further one.
func (a *Agent) authorize(ctx context.Context, secret string) error {
	got := sha256.Sum256([]byte(secret))
	a.mu.Lock()
	want := a.secret
	a.mu.Unlock()
	if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
		return nil
	}
	wrong := <-a.wrong
	defer func() { a.wrong <- wrong }()
	if now := time.Now(); now.Sub(wrong.since) > time.Minute {
		wrong = guesses{since: now}
	}
	if wrong.count++; wrong.count > wrongFree {
		select {
		case <-time.After(wrongDelay):
		case <-ctx.Done():
		}
	}
	a.config.Log.Warn("a request with a wrong secret was refused", "count", wrong.count)
	return wire.Errorf(wire.Denied, "the secret is wrong")
}

// rotate replaces the secret that requests need. If the file can be written, the new secret
// survives a restart.
func (a *Agent) rotate(secret string) (wire.Rotated, error) {
	if err := wire.ValidSecret(secret); err != nil {
		return wire.Rotated{}, err
	}
	if a.freezer.frozen() {
		return wire.Rotated{}, wire.Errorf(wire.Frozen, "file systems are frozen")
	}
	err := replaceFile(a.config.SecretFile, 0o600, strings.NewReader(secret+"\n"))
	if err != nil {
		a.config.Log.Warn("the new secret could not be stored", "error", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.secret = sha256.Sum256([]byte(secret))
	return wire.Rotated{Stored: err == nil}, nil
}

// Serve serves a stream until ctx or the stream ends, and closes it.
func (a *Agent) Serve(ctx context.Context, stream io.ReadWriteCloser) error {
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	return a.serve(ctx, stream, wire.NewReader(stream))
}

// ServePort is like Serve, but the end of the stream only means that no host is connected: it polls
// the stream again. It keeps the port open, since closing it would discard what a new host has
// already written.
func (a *Agent) ServePort(ctx context.Context, port io.ReadWriteCloser) error {
	defer port.Close()
	defer context.AfterFunc(ctx, func() { port.Close() })()
	r := wire.NewReader(port)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, maxPortPause) {
		began := time.Now()
		if err := a.serve(ctx, port, r); err != nil {
			return err
		}
		if time.Since(began) > time.Second { // a host was there
			pause = 10 * time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// serve runs sessions until the stream ends, which is not an error, or ctx does.
func (a *Agent) serve(ctx context.Context, stream io.Writer, r *wire.Reader) error {
	for {
		nonce, err := r.Preamble(nil, 0)
		if err == nil {
			a.config.Log.Info("session began")
			err = a.session(ctx, stream, r, nonce)
			a.config.Log.Info("session ended", "reason", err)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case !errors.Is(err, wire.ErrMalformed):
			return err
		}
	}
}
