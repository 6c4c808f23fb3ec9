package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// conn is a kept-alive HTTP/1.1 connection with just the features that the load generator needs. It
// relies on Content-Length, which all measured servers send.
type conn struct {
	c   net.Conn
	buf []byte
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, buf: make([]byte, 2048)}, nil
}

var (
	headerEnd     = []byte("\r\n\r\n")
	contentLength = []byte("Content-Length: ")
)

// roundTrip sends prepared bytes and reads one response.
func (c *conn) roundTrip(request []byte) (status int, err error) {
	_ = c.c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := c.c.Write(request); err != nil {
		return 0, err
	}
	n := 0
	for {
		if n == len(c.buf) {
			return 0, errors.New("the response is too large for the load generator")
		}
		m, err := c.c.Read(c.buf[n:])
		if err != nil {
			return 0, err
		}
		n += m
		end := bytes.Index(c.buf[:n], headerEnd)
		if end < 0 {
			continue
		}
		head, length := c.buf[:end+2], 0
		if at := bytes.Index(head, contentLength); at >= 0 {
			digits := head[at+len(contentLength):]
			if length, err = strconv.Atoi(string(digits[:bytes.IndexByte(digits, '\r')])); err != nil {
				return 0, err
			}
		}
		if n < end+4+length {
			continue
		}
		if len(head) < 12 {
			return 0, errors.New("not an HTTP response")
		}
		return strconv.Atoi(string(head[9:12]))
	}
}

func (c *conn) close() { _ = c.c.Close() }

// request is a prepared HTTP request. If stamp is positive, it is the offset at which the time of
// sending is written, as 19 digits of nanoseconds.
type request struct {
	bytes []byte
	stamp int
}

const (
	stampMark = `"bench_at":`
	noStamp   = "1000000000000000000"
)

// post prepares a POST request. If the body contains stampMark, request.at stamps it.
func post(addr, path, token, body string) request {
	auth := ""
	if token != "" {
		auth = "Authorization: Bearer " + token + "\r\n"
	}
	b := fmt.Appendf(
		nil, "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, addr, auth, len(body), body,
	)
	r := request{bytes: b}
	if at := bytes.Index(b, []byte(stampMark)); at >= 0 {
		r.stamp = at + len(stampMark)
	}
	return r
}

func (r *request) at(t time.Time) []byte {
	if r.stamp > 0 {
		strconv.AppendInt(r.bytes[:r.stamp], t.UnixNano(), 10)
	}
	return r.bytes
}
