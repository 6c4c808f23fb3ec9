//go:build linux

package network

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/nftables"
)

// frames is how many frames of a KiB a test sends at once, far more than a burst.
const frames = 4096

// arriving sends frames from one tap and returns how many arrive at another.
func arriving(t *testing.T, from, at wire, ip string) (n int) {
	t.Helper()
	payload := bytes.Repeat([]byte{7}, 1000)
	frame := udp(hw(1), ip, 1000, 2000, payload)
	b := make([]byte, 2048)
	read := func(patience time.Duration) bool {
		if err := at.f.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		length, err := at.f.Read(b)
		if err == nil && bytes.Contains(b[:length], payload) {
			n++
		}
		return err == nil
	}
	for range frames {
		from.send(t, frame)
		for read(time.Microsecond) {
		}
	}
	for read(300 * time.Millisecond) { // what is still on its way
	}
	return n
}

func TestWhatAGuestSendsAndReceivesIsLimitedFromNowOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	a := s.attach(Port{VM: "vm-a", MAC: hw(1)})
	b := s.attach(Port{VM: "vm-b", MAC: hw(2)})
	wa, wb := open(t, s.host, a.Tap), open(t, s.host, b.Tap)
	join(t, wa, wb, udp(hw(1), a.IP.String(), 1, 2, []byte("hello")))
	if n := arriving(t, wa, wb, a.IP.String()); n < frames*9/10 {
		t.Fatalf("without a limit, %d of %d frames arrive", n, frames)
	}
	set := func(vm string, l Limits) {
		t.Helper()
		s.must(s.do(func() error { return s.m.SetLimits(t.Context(), vm, l) }))
	}
	for name, limit := range map[string]func(bits int64){
		"sending":   func(bits int64) { set("vm-a", Limits{Send: bits}) },
		"receiving": func(bits int64) { set("vm-b", Limits{Receive: bits}) },
	} {
		limit(100_000)
		limit(200_000) // in place of the one before
		if n := arriving(t, wa, wb, a.IP.String()); n == 0 || n > frames/2 {
			t.Errorf("%s: with a limit, %d of %d frames arrive", name, n, frames)
		}
		limit(0)
		if n := arriving(t, wa, wb, a.IP.String()); n < frames*9/10 {
			t.Errorf("%s: after the limit, %d of %d frames arrive", name, n, frames)
		}
	}
	// What was set stays with the VM when it is attached again, and goes with its tap.
	set("vm-a", Limits{Send: 100_000_000_000, Receive: 100_000_000_000})
	s.attach(Port{VM: "vm-a", MAC: hw(1), Limits: Limits{Send: 100_000, Receive: 100_000}})
	if n := s.limited(); n != 1 {
		t.Errorf("%d taps are limited", n)
	}
	s.must(errors.Join(wa.f.Close(), s.do(func() error { return s.m.Detach(t.Context(), "vm-a") })))
	if n := s.limited(); n != 0 {
		t.Errorf("%d taps are limited that are gone", n)
	}
	set("vm-a", Limits{Send: 1}) // it has no tap
}

// limited returns how many taps have a limit of what their guests send.
func (s *site) limited() (n int) {
	s.t.Helper()
	s.must(s.do(func() error {
		c, err := connect()
		if err != nil {
			return err
		}
		chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyNetdev)
		n = len(chains)
		return err
	}))
	return n
}
