//go:build linux

// Package demo shows the load balancer at work on one machine: `mainstay lb demo`.
//
// It creates a separate network (kit/netlab), starts the daemon from this binary in it, sends
// traffic, and changes and breaks things while it prints what happens. Nothing exists outside this
// process and the daemon, which stops with it. So nothing is left when it ends, however it ends;
// only after kill -9, a small directory with the daemon's configuration and log remains among the
// temporary files.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Config holds the options of the demonstration.
type Config struct {
	Mode string        // nat or dsr
	Step time.Duration // how long each step is shown
	Stay bool          // continue until interrupted after the last step
	Out  io.Writer
}

const (
	backends  = 3
	startWait = 20 * time.Second
	stopWait  = 5 * time.Second
)

// Run runs the demonstration until it or ctx ends.
func Run(ctx context.Context, cfg Config) (err error) {
	if os.Geteuid() != 0 {
		return fault.New(
			fault.Denied, "making network namespaces and loading BPF programs takes root: run sudo mainstay lb demo",
		)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n, err := newNetwork(backends, cfg.Mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	for _, b := range n.backends {
		if err := b.start(ctx); err != nil {
			return err
		}
	}
	daemon, err := startDaemon(n, cfg.Mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, daemon.stop()) }()
	address, err := n.expose(ctx, apiAddress)
	if err != nil {
		return err
	}
	s := &story{cfg: cfg, network: n, traffic: &traffic{client: n.client, got: map[string]int{}}, daemon: daemon}
	if s.api, err = lbapi.NewClient("http://" + address + lbapi.BasePath); err != nil {
		return err
	}
	if err = s.awaitHealthy(ctx); err == nil {
		sending := make(chan struct{})
		go func() { s.traffic.run(ctx); close(sending) }()
		err = s.tell(ctx, "http://"+address)
		cancel()
		<-sending
	}
	_, _ = fmt.Fprintln(cfg.Out, "\nCleaning up.") // continue even if it cannot be written
	if errors.Is(err, context.Canceled) {
		return nil // interrupted by the user
	}
	return err
}

// daemon is the load balancer, running as a process on the balancer host.
type daemon struct {
	cmd    *exec.Cmd
	folder string
	log    *os.File
	done   chan struct{}
	err    error // set when done is closed
}

func startDaemon(n *network, mode string) (d *daemon, err error) {
	d = &daemon{done: make(chan struct{})}
	if d.folder, err = os.MkdirTemp("", "mainstay-lb-demo-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(d.folder))
		}
	}()
	file := filepath.Join(d.folder, "lb.yaml")
	if err := os.WriteFile(file, []byte(document(n, mode)), 0o600); err != nil {
		return nil, err
	}
	if d.log, err = os.Create(filepath.Join(d.folder, "log")); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// Nothing is pinned: the BPF program is removed with the daemon.
	d.cmd = exec.Command(self, "serve", "lb", "--config", file, "--metrics-listen", "127.0.0.1:9871", "--bpf-dir=")
	d.cmd.Env = []string{}
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	// The daemon must not outlive this process, even if this process is killed, and Ctrl-C in the
	// terminal must not reach it before this process has finished.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := n.balancer.Start(d.cmd); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	go func() {
		d.err = d.cmd.Wait()
		close(d.done)
	}()
	return d, nil
}

// document returns the daemon's configuration.
func document(n *network, mode string) string {
	var b strings.Builder
	fmt.Fprintf(
		&b, "interface: %s\napiListen: %s\nvips:\n- address: %s\n  port: %d\n  mode: %s\n", device, apiAddress,
		vip.Addr(), vip.Port(), mode,
	)
	fmt.Fprintf(&b, "  healthCheck: {type: tcp, interval: 500ms, timeout: 300ms, rise: 2, fall: 2}\n  backends:\n")
	for _, backend := range n.backends {
		fmt.Fprintf(&b, "  - address: %s\n", backend.address)
	}
	return b.String()
}

// stop stops the daemon and removes its directory.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-d.done:
	case <-time.After(stopWait):
		_ = d.cmd.Process.Kill()
		<-d.done
	}
	return errors.Join(d.log.Close(), os.RemoveAll(d.folder))
}

// failure returns why the daemon ended unexpectedly, with its last output.
func (d *daemon) failure() error {
	said, _ := os.ReadFile(d.log.Name()) // optional
	return fmt.Errorf("the daemon ended: %w\n%s", d.err, strings.TrimSpace(string(said)))
}
