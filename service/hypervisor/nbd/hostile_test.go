package nbd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

func connOf(n net.Conn, size int64) *Conn {
	return &Conn{net: n, in: bufio.NewReader(n), size: size, extents: true, context: 5}
}

// canned is a connection whose server has said everything beforehand.
type canned struct {
	io.Reader
	net.Conn
}

func (c canned) Read(p []byte) (int, error) { return c.Reader.Read(p) }
func (canned) Write(p []byte) (int, error)  { return len(p), nil }
func (canned) Close() error                 { return nil }
func (canned) SetDeadline(time.Time) error  { return nil }
func structured(flags, kind uint16, cookie uint64, body ...byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, structuredMagic)
	out = binary.BigEndian.AppendUint16(out, flags)
	out = binary.BigEndian.AppendUint16(out, kind)
	out = binary.BigEndian.AppendUint64(out, cookie)
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)))
	return append(out, body...)
}

// Whatever a server answers, a read returns in bounded time and memory, and succeeds only with all
// the bytes.
func FuzzAnswer(f *testing.F) {
	data := append(binary.BigEndian.AppendUint64(nil, 4096), bytes.Repeat([]byte{7}, 512)...)
	f.Add(structured(1, chunkOffsetData, 1, data...), true)
	f.Add(structured(1, chunkOffsetHole, 1, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 2, 0), true)
	f.Add(structured(1, chunkBlockStatus, 1, 0, 0, 0, 5, 0, 0, 2, 0, 0, 0, 0, 1), false)
	f.Add(structured(1, chunkBlockStatus, 1, 0, 0, 0, 5, 255, 255, 255, 255, 0, 0, 0, 1), false)
	f.Add(structured(1, chunkError, 1, 0, 0, 0, 5, 255, 255, 'n', 'o'), true)
	f.Add(structured(0, chunkNone, 1), true)
	f.Add(structured(1, chunkNone, 1), true)
	f.Add([]byte{0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1}, true)
	f.Fuzz(func(t *testing.T, answer []byte, read bool) {
		c := connOf(canned{Reader: bytes.NewReader(answer)}, 1<<20)
		if read {
			into := bytes.Repeat([]byte{0xEE}, 512)
			if err := c.ReadAt(context.Background(), into, 4096); err == nil && len(answer) < 32 {
				t.Fatalf("a read succeeded by %d bytes", len(answer))
			}
			return
		}
		extents, err := c.Extents(context.Background(), 4096, 8192)
		if err != nil {
			return
		}
		at := int64(4096)
		for _, e := range extents {
			if e.Offset != at || e.Length <= 0 || e.Offset+e.Length > 4096+8192 {
				t.Fatalf("extents %v", extents)
			}
			at += e.Length
		}
	})
}

// Whatever a server says, the negotiation ends.
func FuzzNegotiation(f *testing.F) {
	f.Add([]byte("NBDMAGICIHAVEOPT\x00\x03"))
	f.Fuzz(func(t *testing.T, said []byte) {
		c := connOf(canned{Reader: bytes.NewReader(said)}, 0)
		if err := c.negotiate("disk", "base:allocation"); err == nil && c.size < 0 {
			t.Fatal("a negative size")
		}
	})
}
