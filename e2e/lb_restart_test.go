//go:build linux

package e2e

import (
	"bytes"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
)

// lbTransfer is a connection that sends bytes that cannot be guessed, one way and
// back, until it is ended, and compares what comes back with what was sent.
type lbTransfer struct {
	*lbConn
	back atomic.Int64 // bytes that came back as they were sent
	stop chan struct{}
	sent chan int64
	end  chan error
}

// transferPace is how long the sender rests after each piece of 64 KiB, so that
// other tests get something of the machine.
const transferPace = time.Millisecond

func startTransfer(c *lbConn) *lbTransfer {
	tr := &lbTransfer{lbConn: c, stop: make(chan struct{}), sent: make(chan int64, 1), end: make(chan error, 1)}
	var seed [32]byte
	_, _ = cryptorand.Read(seed[:]) // it never fails
	go tr.send(rand.NewChaCha8(seed))
	go func() { tr.end <- tr.compare(rand.NewChaCha8(seed)) }()
	return tr
}

func (tr *lbTransfer) send(source io.Reader) {
	var sent int64
	defer func() { tr.sent <- sent }()
	if err := tr.SetDeadline(time.Now().Add(patience)); err != nil {
		return
	}
	if _, err := io.WriteString(tr, "stream\n"); err != nil {
		return
	}
	for piece := make([]byte, 64<<10); ; {
		select {
		case <-tr.stop:
			_ = tr.Conn.(*net.TCPConn).CloseWrite() // compare sees what is missing
			return
		case <-time.After(transferPace):
		}
		_, _ = source.Read(piece) // it has no end
		n, err := tr.Write(piece)
		sent += int64(n)
		if err != nil {
			return
		}
	}
}

func (tr *lbTransfer) compare(source io.Reader) error {
	got, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := tr.lines.Read(got)
		_, _ = source.Read(want[:n])
		if !bytes.Equal(got[:n], want[:n]) {
			return fmt.Errorf("what came back after %d bytes is not what was sent", tr.back.Load())
		}
		tr.back.Add(int64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", tr.back.Load(), err)
		}
	}
}

// moves waits until so many more bytes came back.
func (tr *lbTransfer) moves(t *testing.T, when string, bytes int64) {
	t.Helper()
	from := tr.back.Load()
	eventually(t, "the transfer goes on "+when, func() bool { return tr.back.Load() >= from+bytes })
}

// finish ends the transfer and checks that all came back.
func (tr *lbTransfer) finish(t *testing.T) {
	t.Helper()
	close(tr.stop)
	err, sent := <-tr.end, <-tr.sent
	if err != nil || sent != tr.back.Load() {
		t.Errorf("%d bytes sent, %d came back: %v", sent, tr.back.Load(), err)
	}
}

func TestLoadBalancerRestartsInMidTransfer(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"nat", "dsr"} {
		for name, end := range map[string]func(*process){"SIGTERM": (*process).stop, "kill": (*process).kill} {
			t.Run(mode+" "+name, func(t *testing.T) {
				t.Parallel()
				n := newLBNetwork(t, 3, mode, "10.99.9.9")
				for _, b := range n.backends {
					b.listen(80)
				}
				d := startLB(
					t, n.balancer,
					lbDocument([]lbVIP{{address: "10.99.9.9", port: 80, mode: mode, backends: n.backends}}),
				)
				const vip = "10.99.9.9:80"
				busy := startTransfer(n.connectTo(n.backends[0], "tcp", vip))
				busy.moves(t, "at first", 1<<20)
				idle := n.connectTo(n.backends[1], "tcp", vip)
				ask(d.api(lbAdminKey).DrainBackend(t.Context(), d.id(n.backends[1]), lbapi.Nothing{})).is(t, 200)
				ids := d.row(n.backends[0]).Id

				end(d.process)
				if !d.attached() {
					t.Fatal("the program went with the process")
				}
				busy.moves(t, "while nobody is there", 1<<20)
				n.goesOn("while nobody is there", idle)
				if homes := n.spread(vip, 60); homes["b1"] == 0 || homes["b3"] == 0 || homes["b2"] != 0 {
					t.Errorf("while nobody is there, connections are at %v", homes)
				}
				gone := n.backends[2]
				gone.refuse(80)

				d.start()
				d.becomes(gone, lbapi.BackendStateDown)
				busy.moves(t, "after the start", 1<<20)
				n.goesOn("after the start", idle)
				// The drain was the process's; the backend is what the kernel had it for.
				if r := d.row(n.backends[1]); r.AdminDraining || r.State != lbapi.BackendStateHealthy {
					t.Errorf("after the start: %+v", r)
				}
				if homes := n.spread(vip, 60); homes["b1"] == 0 || homes["b2"] == 0 || homes["b3"] != 0 {
					t.Errorf("after the start, connections are at %v", homes)
				}
				if id := d.row(n.backends[0]).Id; id != ids {
					t.Errorf("the id of the first backend was %d and is %d", ids, id)
				}
				if flows := d.vip(vip + ":tcp").Flows; flows < 120 {
					t.Errorf("%d flows are counted: the kernel's counters did not outlive the process", flows)
				}
				busy.finish(t)
			})
		}
	}
}

func TestLoadBalancerSurvivesAHailOfRestarts(t *testing.T) {
	t.Parallel()
	n := newLBNetwork(t, 2, "nat")
	for _, b := range n.backends {
		b.listen(80)
	}
	d := startLB(t, n.balancer, lbDocument([]lbVIP{{address: "10.99.9.9", port: 80, backends: n.backends}}))
	var transfers []*lbTransfer
	for _, b := range n.backends {
		transfers = append(transfers, startTransfer(n.connectTo(b, "tcp", "10.99.9.9:80")))
	}
	for range 6 {
		// Killed at any moment of its start.
		d.process.kill()
		d.process = d.launch(d.env, d.args...)
		time.Sleep(rand.N(250 * time.Millisecond)) // the moment is what is tried
		_ = d.process.cmd.Process.Signal(syscall.SIGKILL)
		for _, tr := range transfers {
			tr.moves(t, "after a kill", 64<<10)
		}
	}
	d.process.kill()
	d.start()
	d.healthy()
	if homes := n.spread("10.99.9.9:80", 60); len(homes) != 2 {
		t.Errorf("connections are at %v", homes)
	}
	for _, tr := range transfers {
		tr.finish(t)
	}
}
