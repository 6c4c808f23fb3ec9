//go:build linux

package demo

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/netlab"
)

const (
	dialTimeout = time.Second
	newEvery    = 8 * time.Millisecond // between two new connections
	keptOpen    = 6                    // connections that stay open
	lineEvery   = 100 * time.Millisecond
)

// traffic is the client's traffic, and its results since the last reading.
type traffic struct {
	client *netlab.Host

	mu     sync.Mutex
	got    map[string]int // responses to new connections, by backend
	failed int            // new connections without a response
	broken int            // persistent connections that broke
	homes  [keptOpen]string
}

// run sends traffic until ctx ends.
func (t *traffic) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for i := range keptOpen {
		all.Go(func() { t.stay(ctx, i) })
	}
	tick := time.NewTicker(newEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all.Go(func() { t.visit(ctx) })
		}
	}
}

// visit opens a connection, sends one request and closes it.
func (t *traffic) visit(ctx context.Context) {
	name, err := t.once(ctx)
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed++
		return
	}
	t.got[name]++
}

func (t *traffic) once(ctx context.Context) (name string, err error) {
	c, err := dial(ctx, t.client, vip.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	return ask(c, bufio.NewReader(c))
}

// stay keeps one connection open and sends requests now and then. If it breaks, it opens another.
func (t *traffic) stay(ctx context.Context, number int) {
	for ctx.Err() == nil {
		c, err := dial(ctx, t.client, vip.String())
		if err == nil {
			t.keepAsking(ctx, c, number)
			_ = c.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(lineEvery):
		}
	}
}

func (t *traffic) keepAsking(ctx context.Context, c net.Conn, number int) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	tick := time.NewTicker(lineEvery)
	defer tick.Stop()
	answers := bufio.NewReader(c)
	for {
		name, err := ask(c, answers)
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		if err != nil {
			t.broken++
			t.homes[number] = ""
			t.mu.Unlock()
			return
		}
		t.homes[number] = name
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func ask(c net.Conn, answers *bufio.Reader) (string, error) {
	if err := c.SetDeadline(time.Now().Add(2 * dialTimeout)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, "who"); err != nil {
		return "", err
	}
	name, err := answers.ReadString('\n')
	return strings.TrimSpace(name), err
}

// reading holds the results since the last one.
type reading struct {
	got            map[string]int
	failed, broken int
	homes          map[string]int // persistent connections, by backend
}

func (t *traffic) read() reading {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := reading{got: t.got, failed: t.failed, broken: t.broken, homes: map[string]int{}}
	for _, home := range t.homes {
		if home != "" {
			r.homes[home]++
		}
	}
	t.got, t.failed, t.broken = map[string]int{}, 0, 0
	return r
}
