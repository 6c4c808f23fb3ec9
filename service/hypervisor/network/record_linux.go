package network

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/nftables/binaryutil"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/hypervisor/netpolicy"
)

// Of the kernel's linux/netfilter/nfnetlink_log.h.
const (
	logPacket, logConfig                               = unix.NFNL_SUBSYS_ULOG << 8, unix.NFNL_SUBSYS_ULOG<<8 | 1
	configCommand, configMode, configTimeout           = 1, 2, 4
	commandBind, copyPacket                            = 1, 2
	attributeHeader, attributePayload, attributePrefix = 1, 9, 10
)

// flushRecords is how long the kernel may collect records, in hundredths of a second.
const flushRecords = 10

// record reads the records of network policies until ctx ends or the returned function is called,
// which waits for the reader's end. Without records, policies work all the same.
func (m *Manager) record(ctx context.Context) (stop func()) {
	if m.o.OnFlow == nil {
		return func() {}
	}
	c, err := bindRecords(m.o.recordGroup()) // here: sockets belong to the network namespace of the thread
	if err != nil {
		m.o.Log.Warn("the decisions of network policies are not recorded", "error", err)
		return func() {}
	}
	reading, cancel := context.WithCancel(ctx)
	context.AfterFunc(reading, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) }) // fails only if closed
	done := routine.Start(m.o.Log, "records of network policies", func() error {
		m.readRecords(reading, c)
		return nil
	})
	return func() {
		cancel()
		if err := <-done; err != nil {
			m.o.Log.Error("reading the records of network policies failed", "error", err)
		}
		_ = c.Close() // nothing is in it that anybody waits for
	}
}

func bindRecords(group uint16) (*netlink.Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, kernel(err)
	}
	configure := func(attributes ...netlink.Attribute) error {
		data, err := netlink.MarshalAttributes(attributes)
		if err != nil {
			return err
		}
		header := append([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, binaryutil.BigEndian.PutUint16(group)...)
		_, err = c.Execute(netlink.Message{
			Header: netlink.Header{Type: logConfig, Flags: netlink.Request | netlink.Acknowledge}, Data: append(header, data...),
		})
		return err
	}
	mode := append(binaryutil.BigEndian.PutUint32(recordBytes), copyPacket, 0)
	err = errors.Join(
		configure(netlink.Attribute{Type: configCommand, Data: []byte{commandBind}}),
		configure(
			netlink.Attribute{Type: configMode, Data: mode},
			netlink.Attribute{Type: configTimeout, Data: binaryutil.BigEndian.PutUint32(flushRecords)},
		),
	)
	if err != nil {
		return nil, errors.Join(kernel(err), c.Close())
	}
	return c, nil
}

func (m *Manager) readRecords(ctx context.Context, c *netlink.Conn) {
	for ctx.Err() == nil {
		messages, err := c.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			continue // some were lost
		}
		if err != nil {
			if ctx.Err() == nil {
				m.o.Log.Warn("the decisions of network policies are not recorded any more", "error", err)
			}
			return
		}
		for _, message := range messages {
			if message.Header.Type != logPacket || len(message.Data) < 4 {
				continue
			}
			// What guests sent is in it: a defect in reading it must not end the daemon.
			_ = routine.Run(m.o.Log, "record of a network policy", func() { // logged
				if f, ok := m.flowOf(message.Data[4:]); ok {
					m.o.OnFlow(f)
				}
			})
		}
	}
}

// flowOf reads a record.
func (m *Manager) flowOf(data []byte) (f Flow, ok bool) {
	attributes, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return f, false
	}
	var mark recordMark
	var kind uint16
	var packet []byte
	for _, a := range attributes {
		switch {
		case a.Type == attributeHeader && len(a.Data) >= 2:
			kind = binary.BigEndian.Uint16(a.Data)
		case a.Type == attributePayload:
			packet = a.Data
		case a.Type == attributePrefix && len(a.Data) > 0:
			if mark, ok = parseMark(string(a.Data[:len(a.Data)-1])); !ok {
				return f, false
			}
		}
	}
	f, ok = parsePacket(kind, packet)
	f.Time, f.Ingress, f.Allowed = time.Now(), mark.direction == incoming.name, mark.action == netpolicy.Allow
	return f, ok && m.attribute(&f, mark)
}
