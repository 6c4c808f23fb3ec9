//go:build linux

package bgp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/bgp"
)

// Routers keep routes when the speaker's process ends, so these tests give it one of its own.

const processVariable = "MAINSTAY_BGP_TEST_SPEAKER"

// task is what such a process does until it is told to end.
type task struct {
	Config   bgp.Config
	Announce []netip.Addr
}

// speak does the task of the environment.
func speak(text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	s := bgp.New(slog.New(slog.NewTextHandler(os.Stderr, nil)), func(session bgp.Session) {
		if session.Established() {
			_, _ = fmt.Fprintln(os.Stdout, session.Peer)
		}
	})
	if err := s.Announce(t.Announce); err != nil {
		return err
	}
	if err := s.Configure(&t.Config); err != nil {
		return err
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the other end is closed
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.Close(ctx)
}

// process is a speaker in a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin interface{ Close() error }
	up    *bufio.Scanner
}

func startProcess(t *testing.T, c *bgp.Config, restarting bool, addresses ...string) *process {
	t.Helper()
	work := task{Config: *c}
	work.Config.Restarting = restarting
	for _, a := range addresses {
		work.Announce = append(work.Announce, netip.MustParseAddr(a))
	}
	text, err := json.Marshal(work)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), "/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), processVariable+"="+string(text))
	p.cmd.Stderr = t.Output()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.up = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// established waits until sessions with so many routers were established.
func (p *process) established(routers int) {
	p.t.Helper()
	seen := map[string]bool{}
	for len(seen) < routers && p.up.Scan() {
		seen[p.up.Text()] = true
	}
	if len(seen) < routers {
		p.t.Fatalf("sessions only with %v", seen)
	}
}

// end asks the process to end, and waits until it has.
func (p *process) end() {
	p.t.Helper()
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
}

func graceful(t *testing.T, keep time.Duration) (routers []*router, c *bgp.Config) {
	t.Helper()
	routers = []*router{startBird(t, settings{}), startFRR(t, settings{})}
	c = config(routers[0].peer(), routers[1].peer())
	c.GracefulRestart = keep
	return routers, c
}

// watch says which of the routers' answers, from now until the returned function is called, lacked a
// route.
func watch(routers []*router, route string) func() (lacked []string) {
	ctx, cancel := context.WithCancel(context.Background())
	found := make(chan []string)
	go func() {
		var lacked []string
		for ctx.Err() == nil {
			for _, r := range routers {
				if seen := r.routes(); !strings.Contains(seen, route) && ctx.Err() == nil {
					lacked = append(lacked, fmt.Sprintf("%s: %s", r.address(), seen))
				}
			}
		}
		found <- lacked
	}()
	return func() []string {
		cancel()
		return <-found
	}
}

func TestRoutersKeepTheRoutesWhileTheProcessIsReplaced(t *testing.T) {
	for name, end := range map[string]func(*process){"ended": (*process).end, "killed": (*process).kill} {
		t.Run(name, func(t *testing.T) {
			routers, c := graceful(t, 60*time.Second)
			first := startProcess(t, c, false, "192.0.2.1", "192.0.2.2")
			first.established(2)
			for _, r := range routers {
				r.has("192.0.2.1/32", "192.0.2.2/32")
			}
			lacked := watch(routers, "192.0.2.1/32")
			end(first)
			second := startProcess(t, c, true, "192.0.2.1", "192.0.2.3") // it balances another VIP now
			second.established(2)
			for _, r := range routers {
				r.has("192.0.2.1/32", "192.0.2.3/32")
				r.hasNot("192.0.2.2/32") // what is not announced again goes
			}
			if answers := lacked(); len(answers) > 0 {
				t.Errorf("the route was gone %d times, first: %s", len(answers), answers[0])
			}
		})
	}
}

func TestRoutersDropTheRoutesOfAProcessThatDoesNotComeBack(t *testing.T) {
	routers, c := graceful(t, 2*time.Second)
	p := startProcess(t, c, false, "192.0.2.1")
	p.established(2)
	for _, r := range routers {
		r.has("192.0.2.1/32")
	}
	p.kill()
	for _, r := range routers {
		r.hasNot("192.0.2.1/32")
	}
}

func TestRoutersDropTheRoutesOfANodeThatForgotItsConnections(t *testing.T) {
	routers, c := graceful(t, time.Hour)
	first := startProcess(t, c, false, "192.0.2.1", "192.0.2.2")
	first.established(2)
	for _, r := range routers {
		r.has("192.0.2.1/32", "192.0.2.2/32")
	}
	first.kill()
	startProcess(t, c, false, "192.0.2.2").established(2) // it has been rebooted, and has one VIP less
	for _, r := range routers {
		r.has("192.0.2.2/32")
		r.hasNot("192.0.2.1/32")
	}
}
