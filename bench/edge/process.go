package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a measured server.
type process struct {
	cmd  *exec.Cmd
	addr string // host:port
	logs chan struct{}
}

// Credentials of the measured product.
const (
	adminToken      = "bench-admin-token"
	enrollmentToken = "bench-enrollment-token"
)

// startProduct runs the product with a data folder.
func startProduct(ctx context.Context, o options, dir string, flags ...string) (*process, error) {
	args := append(
		[]string{"serve", "edge", "--listen", "127.0.0.1:0", "--data", dir, "--allow-private-targets"}, flags...)
	cmd := exec.Command(o.product, args...)
	cmd.Env = append(os.Environ(), "EDGE_ADMIN_TOKEN="+adminToken, "EDGE_ENROLLMENT_TOKEN="+enrollmentToken)
	return startProcess(ctx, cmd)
}

// startReference runs this program as one of the references.
func startReference(ctx context.Context, kind, dir string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startProcess(ctx, exec.Command(self, "-reference", kind, "-data", dir))
}

var listening = regexp.MustCompile(`listening.* url=\w+://(\S+)`)

// startProcess starts a process and waits until it logs its address. The process has its own
// process group, so that Ctrl-C does not end it before the measurement.
func startProcess(ctx context.Context, cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	logs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, logs: make(chan struct{})}
	addr := make(chan string, 1)
	go func() {
		defer close(p.logs)
		shown := 0
		for s := bufio.NewScanner(logs); s.Scan(); {
			if m := listening.FindStringSubmatch(s.Text()); m != nil {
				addr <- m[1]
			} else if shown++; shown <= 5 && !strings.Contains(s.Text(), "level=INFO") { // the first few are enough
				fmt.Fprintln(os.Stderr, "  server:", s.Text())
			}
		}
		_, _ = io.Copy(io.Discard, logs)
	}()
	select {
	case p.addr = <-addr:
		return p, nil
	case <-p.logs:
		return nil, errors.Join(errors.New("the server ended before it listened"), cmd.Wait())
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
		err = errors.New("the server does not listen")
	}
	return nil, errors.Join(ctx.Err(), err, p.stop())
}

// stop terminates the process, and kills it if that takes too long.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(25*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.logs
	var ended *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &ended) {
		return err
	}
	return nil
}

// cpu returns the processor time that the process has used.
func (p *process) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name before it may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	const tick = 10 * time.Millisecond // USER_HZ is 100 wherever Go runs on Linux
	return time.Duration(user+system) * tick
}

// memory reads VmRSS or VmHWM, in bytes.
func (p *process) memory(key string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}
