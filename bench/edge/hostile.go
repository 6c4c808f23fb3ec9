package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"
)

// hostileSection measures the effect of an attack on other clients. The attack consists of
// connections that send the head of a request and then a byte of its body from time to time, some
// without credentials, some with a leaked token, and of as many streams as that token can open.
func hostileSection(ctx context.Context, o options, r *report) (err error) {
	clients, hostile := 200, 5000
	if o.quick {
		clients, hostile = 20, 500
	}
	if limit := int(fileLimit()) - clients - 200; hostile > limit {
		hostile = limit
	}
	p, err := startProduct(ctx, o, filepath.Join(o.dir, "hostile"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	s, err := p.enroll(ctx, "bench")
	if err != nil {
		return err
	}
	var rows [][]string
	measure := func(what string) error {
		progress("hostile: %s", what)
		l := load{
			addr:        p.addr,
			connections: clients,
			want:        202,
			pace:        20 * time.Millisecond,
			warmup:      o.warmup,
			duration:    o.duration,
			request:     func(int) request { return post(p.addr, eventsPath, s.token, eventBody(s.id)) },
		}
		res, err := l.run(ctx)
		if err != nil {
			return err
		}
		probe, err := healthz(p.addr)
		if err != nil {
			return err
		}
		rows = append(rows, []string{
			what, fmt.Sprintf("%.0f", res.rate()), ms(res.quantile(.5)), ms(res.quantile(.99)),
			fmt.Sprint(res.errors), ms(probe),
		})
		return nil
	}
	if err := measure("before"); err != nil {
		return err
	}
	attack, stop := context.WithCancel(ctx)
	defer stop()
	for i := range hostile {
		head := "POST /api/v1/auth/login HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{"
		switch i % 3 {
		case 1:
			head = "POST /api/v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + adminToken + "\r\nContent-Length: 1000\r\n\r\n{"
		case 2:
			head = "GET /api/v1/stream HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + adminToken + "\r\n\r\n"
		}
		go trickle(attack, p.addr, head)
	}
	if err := measure(fmt.Sprintf("meanwhile, %d hostile connections", hostile)); err != nil {
		return err
	}
	r.section("7. Hostile connections")
	r.say(
		"%d clients, each an event every 20 ms. Meanwhile %d connections that begin a login, an event or a stream, send a byte a second, and come back when they are closed.\n",
		clients, hostile,
	)
	r.table([]string{"What", "events/s", "p50", "p99", "errors", "/healthz"}, rows)
	return ctx.Err()
}

// trickle keeps a connection open that sends head and then one byte per second.
func trickle(ctx context.Context, addr, head string) {
	more := "x"
	if strings.HasPrefix(head, "GET") {
		more = "" // a stream only reads
	}
	for ctx.Err() == nil {
		c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", addr)
		for text := head; err == nil && ctx.Err() == nil; text = more {
			_, err = c.Write([]byte(text))
			time.Sleep(time.Second)
		}
		if c != nil {
			_ = c.Close()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// healthz measures a probe over its own connection.
func healthz(addr string) (time.Duration, error) {
	began := time.Now()
	c, err := dial(addr)
	if err != nil {
		return 0, err
	}
	defer c.close()
	status, err := c.roundTrip([]byte("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"))
	if err == nil && status != 200 {
		err = fmt.Errorf("/healthz answered %d", status)
	}
	return time.Since(began), err
}
