package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agentapi "github.com/mainstay-infra/mainstay/api/agent"
	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// agent is a site agent that can be stopped, killed and started again on the same
// data. Programs reach it through its socket.
type agent struct {
	testing.TB
	data string
	env  []string
	args []string
	// namespace is the network namespace that it runs in; empty: the test's own.
	namespace string

	process *process
	api     *agentapi.Client
	// printed is what earlier processes printed.
	printed []string
}

// newAgent prepares an agent of a control plane. Later args win over earlier ones.
func newAgent(t testing.TB, server string, args ...string) *agent {
	t.Helper()
	// The path of a socket is short, those of test folders are not.
	data, err := os.MkdirTemp("", "agent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	a := &agent{TB: t, data: data, env: []string{"AGENT_ENROLLMENT_TOKEN=" + enrollmentToken}}
	a.args = append(
		[]string{
			"agent", "--server", server, "--name", "site", "--data", a.data, "--listen", "", "--podman-socket", "",
			"--retry-max", "1s",
		},
		args...)
	return a
}

var agentListening = regexp.MustCompile(`msg=listening service=agent`)

func (a *agent) launch() {
	a.Helper()
	if a.process != nil {
		a.printed = append(a.printed, a.process.output.String())
	}
	path, err := binary()
	if err != nil {
		a.Fatal(err)
	}
	command := append([]string{path}, a.args...)
	if a.namespace != "" {
		command = append([]string{"ip", "netns", "exec", a.namespace}, command...) // which becomes the program
	}
	a.process = launchProgram(a.TB, a.env, command[0], command[1:]...)
	socket := filepath.Join(a.data, agentapi.Socket)
	transport := &http.Transport{
		MaxIdleConnsPerHost: 16,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	a.Cleanup(transport.CloseIdleConnections)
	if a.api, err = agentapi.NewClient(
		"http://localhost"+agentapi.BasePath,
		rest.WithHTTPClient(&http.Client{Transport: transport, Timeout: 30 * time.Second}),
	); err != nil {
		a.Fatal(err)
	}
}

func (a *agent) start() {
	a.Helper()
	a.launch()
	if _, ok := a.process.awaitOutput(agentListening); !ok {
		a.Fatalf("the agent did not start:\n%s", tail(a.process.output.String(), 20))
	}
}

func startAgent(t testing.TB, server string, args ...string) *agent {
	t.Helper()
	a := newAgent(t, server, args...)
	a.start()
	return a
}

// output is what all processes of the agent printed.
func (a *agent) output() string {
	return strings.Join(a.printed, "\n") + "\n" + a.process.output.String()
}

func (a *agent) kill() { a.process.kill() }

// status is nil while nobody answers.
func (a *agent) status() *agentapi.Status {
	a.Helper()
	status, err := rest.Do[agentapi.Status](a.api.GetStatus(a.Context()))
	if err != nil {
		return nil
	}
	return &status
}

func (a *agent) is(state agentapi.LinkState) bool {
	a.Helper()
	s := a.status()
	return s != nil && s.Link.State == state
}

func (a *agent) online() {
	a.Helper()
	eventually(a, "the agent has a link", func() bool { return a.is(agentapi.LinkStateOnline) })
}

// programs are programs at the site that send events all the time, each its own
// one after the other, and repeat each until it is acknowledged.
type programs struct {
	*agent
	stop chan struct{}
	work sync.WaitGroup
	acks atomic.Int64

	mu   sync.Mutex
	sent map[string][]string // by program, what was acknowledged, in order
}

func startPrograms(a *agent, n int) *programs {
	p := &programs{agent: a, stop: make(chan struct{}), sent: map[string][]string{}}
	socket := filepath.Join(a.data, agentapi.Socket)
	for i := range n {
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}
		a.Cleanup(transport.CloseIdleConnections)
		client, err := agentapi.NewClient(
			"http://localhost"+agentapi.BasePath,
			rest.WithHTTPClient(&http.Client{Transport: transport, Timeout: 10 * time.Second}),
		)
		if err != nil {
			a.Fatal(err)
		}
		p.work.Go(func() { p.program(fmt.Sprintf("p%d", i), client, i%2 == 1) })
	}
	return p
}

func (p *programs) program(name string, client *agentapi.Client, batches bool) {
	ctx := p.Context()
	for n := 0; ; {
		select {
		case <-p.stop:
			return
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(rand.Int64N(int64(4 * time.Millisecond)))): // programs have other things to do, too
		}
		var batch agentapi.EventBatch
		var ids []string
		for range 1 + rand.IntN(5) {
			id := fmt.Sprintf("%s-%07d", name, n)
			n++
			ids = append(ids, id)
			batch.Events = append(
				batch.Events,
				agentapi.EventInput{EventId: &id, Topic: "e2e/" + name, Payload: json.RawMessage(`{"reading": 21.5}`)},
			)
			if !batches {
				break
			}
		}
		for !p.hand(ctx, client, batch) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Millisecond): // the agent is being restarted, or full
			}
		}
		p.mu.Lock()
		p.sent[name] = append(p.sent[name], ids...)
		p.mu.Unlock()
		p.acks.Add(int64(len(ids)))
	}
}

func (p *programs) hand(ctx context.Context, client *agentapi.Client, batch agentapi.EventBatch) bool {
	if len(batch.Events) == 1 {
		_, err := rest.Read(client.SendEvent(ctx, batch.Events[0]))
		return err == nil
	}
	_, err := rest.Read(client.SendEvents(ctx, batch))
	return err == nil
}

// more waits until so many more events were acknowledged to programs.
func (p *programs) more(n int64) {
	p.Helper()
	before := p.acks.Load()
	eventually(
		p, fmt.Sprintf("programs go on (%d events were acknowledged)", before),
		func() bool { return p.acks.Load() >= before+n },
	)
}

// end stops the programs and waits until the agent has sent everything.
func (p *programs) end() {
	p.Helper()
	close(p.stop)
	p.work.Wait()
	eventually(p, "the outbox is empty", func() bool { s := p.status(); return s != nil && s.Outbox.Events == 0 })
}

// check holds what the control plane stored and what a target got against what was
// acknowledged to programs: all of it, once, each program's in its order.
func (p *programs) check(e *edge, tg *target, path string, deliveredOnce bool) {
	p.Helper()
	stored := map[string][]string{}
	all := list[edgeapi.Event](e, "/events?limit=1000")
	for _, ev := range slices.Backward(all) {
		name, _, _ := strings.Cut(ev.EventId, "-")
		stored[name] = append(stored[name], ev.EventId)
	}
	for name, sent := range p.sent {
		if got := stored[name]; !slices.Equal(got, sent) {
			p.Errorf("%s: %d events acknowledged, %d stored: %s", name, len(sent), len(got), difference(sent, got))
		}
	}
	if tg == nil {
		return
	}
	e.drained()
	delivered, first := map[string][]string{}, map[string]bool{}
	for _, r := range tg.requests(path) {
		if first[r.EventID] && deliveredOnce {
			p.Errorf("%s was delivered twice", r.EventID)
		}
		if !first[r.EventID] {
			name, _, _ := strings.Cut(r.EventID, "-")
			delivered[name] = append(delivered[name], r.EventID)
		}
		first[r.EventID] = true
	}
	for name, sent := range p.sent {
		got := delivered[name]
		if !deliveredOnce {
			got = slices.Sorted(slices.Values(got)) // deliveries that a killed server repeats come later
		}
		if !slices.Equal(got, sent) {
			p.Errorf("%s: %d events acknowledged, %d delivered: %s", name, len(sent), len(got), difference(sent, got))
		}
	}
}

// difference tells where two lists part.
func difference(want, got []string) string {
	for i := range want {
		if i >= len(got) {
			return "from " + want[i] + " on nothing"
		}
		if want[i] != got[i] {
			return want[i] + " expected, " + got[i] + " came"
		}
	}
	return fmt.Sprintf("%d more", len(got)-len(want))
}

// badLink is a TCP proxy that behaves as a bad link does.
type badLink struct {
	url    func() string // of the server behind it
	ln     net.Listener
	rate   atomic.Int64 // bytes a second to each side; 0: as fast as it goes
	delay  atomic.Int64 // nanoseconds for each piece
	losses atomic.Int64 // a connection is cut after about so many bytes; 0: never

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newBadLink(t testing.TB, address string, url func() string) *badLink {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b := &badLink{url: url, ln: ln, conns: map[net.Conn]bool{}}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			work.Go(func() { b.carry(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close() // it only listens
		b.cut()
		work.Wait()
	})
	return b
}

// cut ends all connections.
func (b *badLink) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		_ = c.Close() // it is to be broken
	}
}

func (b *badLink) note(c net.Conn, open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if open {
		b.conns[c] = true
	} else {
		delete(b.conns, c)
	}
}

func (b *badLink) carry(near net.Conn) {
	defer func() { _ = near.Close() }()
	_, address, _ := strings.Cut(b.url(), "://")
	far, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	for _, c := range []net.Conn{near, far} {
		b.note(c, true)
		defer b.note(c, false)
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			b.copy(way[1], way[0])
			_ = near.Close() // one way broken is both
			_ = far.Close()
		})
	}
	both.Wait()
}

func (b *badLink) copy(to, from net.Conn) {
	buffer, left := make([]byte, 4<<10), int64(-1)
	for {
		n, err := from.Read(buffer)
		if rate := b.rate.Load(); rate > 0 && n > 0 {
			time.Sleep(time.Duration(int64(n) * int64(time.Second) / rate)) // what a slow link does
		}
		time.Sleep(time.Duration(b.delay.Load())) // what a long one does
		if losses := b.losses.Load(); losses > 0 {
			if left < 0 {
				left = rand.Int64N(2 * losses)
			}
			if left -= int64(n); left < 0 {
				return
			}
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

// command runs a program that has to succeed.
func command(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
