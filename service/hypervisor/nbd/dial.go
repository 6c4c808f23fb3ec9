package nbd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"
)

// Options of the negotiation, and the types of its answers.
const (
	optGo             = 7
	optStructured     = 8
	optSetMetaContext = 10

	repAck         = 1
	repInfo        = 3
	repMetaContext = 4
	repError       = 1 << 31
)

const (
	optionMagic = "IHAVEOPT"
	replyMagic  = 0x3e889045565a9
)

// maxOption is the largest answer to an option, in bytes, and maxReplies how many there may be.
const (
	maxOption  = 64 << 10
	maxReplies = 64
)

// Open negotiates with a server over a new connection, which is closed if that fails. metaContext is
// what Extents reports; empty: nothing.
func Open(ctx context.Context, conn net.Conn, export, metaContext string) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c := &Conn{net: conn, in: bufio.NewReaderSize(conn, 256<<10)}
	if err := c.negotiate(export, metaContext); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, errors.Join(fmt.Errorf("negotiate with the NBD server: %w", err), conn.Close())
	}
	return c, nil
}

func (c *Conn) negotiate(export, metaContext string) error {
	var greeting [18]byte
	if _, err := io.ReadFull(c.in, greeting[:]); err != nil {
		return err
	}
	if string(greeting[:16]) != "NBDMAGIC"+optionMagic || greeting[17]&3 != 3 {
		return errProtocol
	}
	if _, err := c.net.Write([]byte{0, 0, 0, 3}); err != nil { // fixed newstyle, no zeroes
		return err
	}
	if err := c.option(optStructured, nil, nil); err != nil {
		return err
	}
	if metaContext != "" {
		var ask bytes.Buffer
		text(&ask, export)
		_ = binary.Write(&ask, binary.BigEndian, uint32(1)) // a Buffer never fails
		text(&ask, metaContext)
		err := c.option(optSetMetaContext, ask.Bytes(), func(kind uint32, body []byte) error {
			if kind != repMetaContext || len(body) < 4 || string(body[4:]) != metaContext {
				return fmt.Errorf("%w: an answer of kind %d", errProtocol, kind)
			}
			c.context, c.extents = binary.BigEndian.Uint32(body), true
			return nil
		})
		if err == nil && !c.extents {
			err = fmt.Errorf("the server does not report %s", metaContext)
		}
		if err != nil {
			return err
		}
	}
	var ask bytes.Buffer
	text(&ask, export)
	_ = binary.Write(&ask, binary.BigEndian, uint16(0)) // no further information
	found := false
	err := c.option(optGo, ask.Bytes(), func(kind uint32, body []byte) error {
		if kind != repInfo || len(body) < 2 {
			return fmt.Errorf("%w: an answer of kind %d", errProtocol, kind)
		}
		if binary.BigEndian.Uint16(body) != 0 {
			return nil // information that is not needed
		}
		if len(body) != 12 || binary.BigEndian.Uint64(body[2:]) > math.MaxInt64 {
			return fmt.Errorf("%w: not a size", errProtocol)
		}
		c.size, found = int64(binary.BigEndian.Uint64(body[2:])), true //nolint:gosec // checked above
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: no size", errProtocol)
	}
	return err
}

func text(b *bytes.Buffer, s string) {
	_ = binary.Write(b, binary.BigEndian, uint32(len(s))) //nolint:gosec // names are short; a Buffer never fails
	b.WriteString(s)
}

// option sends an option and reads the answers up to the acknowledgement. each gets the others.
func (c *Conn) option(option uint32, data []byte, each func(kind uint32, body []byte) error) error {
	ask := make([]byte, 0, 16+len(data))
	ask = append(ask, optionMagic...)
	ask = binary.BigEndian.AppendUint32(ask, option)
	ask = binary.BigEndian.AppendUint32(ask, uint32(len(data))) //nolint:gosec // names are short
	if _, err := c.net.Write(append(ask, data...)); err != nil {
		return err
	}
	for range maxReplies {
		var head [20]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return err
		}
		kind, length := binary.BigEndian.Uint32(head[12:]), binary.BigEndian.Uint32(head[16:])
		if binary.BigEndian.Uint64(head[:]) != replyMagic || binary.BigEndian.Uint32(head[8:]) != option ||
			length > maxOption {
			return errProtocol
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(c.in, body); err != nil {
			return err
		}
		switch {
		case kind == repAck:
			return nil
		case kind&repError != 0:
			return fmt.Errorf("the server refuses option %d (%#x): %.200q", option, kind, body)
		case each == nil:
			return fmt.Errorf("%w: an answer of kind %d", errProtocol, kind)
		}
		if err := each(kind, body); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: too many answers", errProtocol)
}
