package webhook_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// resolverTo returns a resolver for which every name currently has the address that next returns.
// It speaks DNS over an in-memory connection (RFC 1035, 4.2.2).
func resolverTo(t *testing.T, next func() netip.Addr) *net.Resolver {
	t.Helper()
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for answerDNS(server, next) == nil {
			}
		}()
		return client, nil
	}}
}

func answerDNS(conn net.Conn, next func() netip.Addr) error {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, query); err != nil {
		return err
	}
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil {
		return err
	}
	q, err := p.Question()
	if err != nil {
		return err
	}
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: head.ID, Response: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	if q.Type == dnsmessage.TypeA {
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: next().As4()},
		}}
	}
	out, err := reply.AppendPack(make([]byte, 2))
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16(out, uint16(len(out)-2))
	_, err = conn.Write(out)
	return err
}
