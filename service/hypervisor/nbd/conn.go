package nbd

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// MaxRequest is the largest read or write, in bytes. QEMU takes 32 MiB.
const MaxRequest = 32 << 20

// AllocationContext reports holes. Bitmaps are reported by BitmapContext.
const AllocationContext = "base:allocation"

// BitmapContext returns the context that reports QEMU's dirty bitmap of a name.
func BitmapContext(name string) string { return "qemu:dirty-bitmap:" + name }

// Flags of extents.
const (
	// Hole and Zero are flags of AllocationContext: nothing is stored there, and it reads as zeros.
	Hole = 1
	Zero = 2
	// Dirty is the flag of a BitmapContext.
	Dirty = 1
)

// Error is the server's refusal of a request.
type Error struct {
	Errno   syscall.Errno
	Message string // may be empty
}

// Error returns the server's message.
func (e *Error) Error() string {
	if e.Message == "" {
		return "the NBD server answers: " + e.Errno.Error()
	}
	return "the NBD server answers: " + e.Message
}

// Unwrap returns the error's number.
func (e *Error) Unwrap() error { return e.Errno }

// errProtocol is wrapped by errors about a server that does not speak the protocol.
var errProtocol = errors.New("the NBD server does not follow the protocol")

// Extent is a range of the disk with the same flags.
type Extent struct {
	Offset, Length int64 // in bytes
	Flags          uint32
}

// Conn is a connection to one export. It is safe for concurrent use, but serves one request at a
// time.
type Conn struct {
	net     net.Conn
	in      *bufio.Reader
	size    int64
	context uint32 // the server's number of the context that Extents reports
	extents bool   // there is one

	mu     sync.Mutex
	cookie uint64
	broken error
}

// Size returns the size of the export, in bytes.
func (c *Conn) Size() int64 { return c.size }

// Close ends the connection.
func (c *Conn) Close() error { return c.net.Close() }

// Commands.
const (
	cmdRead        = 0
	cmdWrite       = 1
	cmdFlush       = 3
	cmdBlockStatus = 7
)

// Chunk types of structured replies.
const (
	chunkNone        = 0
	chunkOffsetData  = 1
	chunkOffsetHole  = 2
	chunkBlockStatus = 5
	chunkError       = 1<<15 + 1
	chunkErrorOffset = 1<<15 + 2
)

const (
	requestMagic    = 0x25609513
	simpleMagic     = 0x67446698
	structuredMagic = 0x668e33ef
)

// maxChunks is how many chunks an answer may have, and maxExtents how many extents.
const (
	maxChunks  = 1 << 16
	maxExtents = 1 << 20
)

// ReadAt reads len(p) bytes at an offset.
func (c *Conn) ReadAt(ctx context.Context, p []byte, offset int64) error {
	for len(p) > 0 {
		n := min(len(p), MaxRequest)
		if err := c.request(ctx, cmdRead, offset, n, nil, &reading{into: p[:n], at: offset}); err != nil {
			return err
		}
		p, offset = p[n:], offset+int64(n)
	}
	return nil
}

// WriteAt writes p at an offset.
func (c *Conn) WriteAt(ctx context.Context, p []byte, offset int64) error {
	for len(p) > 0 {
		n := min(len(p), MaxRequest)
		if err := c.request(ctx, cmdWrite, offset, n, p[:n], nil); err != nil {
			return err
		}
		p, offset = p[n:], offset+int64(n)
	}
	return nil
}

// Flush makes what was written durable.
func (c *Conn) Flush(ctx context.Context) error { return c.request(ctx, cmdFlush, 0, 0, nil, nil) }

// Extents reports a range of the disk in the context that was given to Open. It may report less
// than the whole range, but at least its beginning.
func (c *Conn) Extents(ctx context.Context, offset, length int64) ([]Extent, error) {
	if !c.extents {
		return nil, errors.New("the connection has no context")
	}
	status := &status{context: c.context, at: offset, end: offset + length}
	err := c.request(ctx, cmdBlockStatus, offset, int(min(length, 1<<31)), nil, status)
	if err == nil && len(status.extents) == 0 {
		err = fmt.Errorf("%w: no extent", errProtocol)
	}
	return status.extents, err
}

// taker takes the chunks of an answer. It gets the exact length of a chunk and reads all of it.
type taker interface {
	take(kind uint16, length int, in io.Reader) error
	// whole says whether the answer is complete.
	whole() bool
}

func (c *Conn) request(ctx context.Context, command uint16, offset int64, length int, data []byte, t taker) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	if offset < 0 || offset+int64(length) > c.size && command != cmdFlush {
		return fmt.Errorf("%d bytes at %d are outside of the disk, which has %d", length, offset, c.size)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := c.exchange(command, offset, length, data, t)
	refused := (*Error)(nil)
	if err == nil || errors.As(err, &refused) {
		return err
	}
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = ctx.Err()
	}
	c.broken = fmt.Errorf("the connection to the NBD server is lost: %w", err)
	_ = c.net.Close()
	return c.broken
}

func (c *Conn) exchange(command uint16, offset int64, length int, data []byte, t taker) error {
	c.cookie++
	head := make([]byte, 28)
	binary.BigEndian.PutUint32(head, requestMagic)
	binary.BigEndian.PutUint16(head[6:], command)
	binary.BigEndian.PutUint64(head[8:], c.cookie)
	binary.BigEndian.PutUint64(head[16:], uint64(offset)) //nolint:gosec // it is inside of the disk
	binary.BigEndian.PutUint32(head[24:], uint32(length)) //nolint:gosec // at most 2 GiB
	buffers := net.Buffers{head, data}
	if _, err := buffers.WriteTo(c.net); err != nil {
		return err
	}
	return c.answer(t)
}

// answer reads an answer to its end.
func (c *Conn) answer(t taker) error {
	var refused error
	for range maxChunks {
		var magic [4]byte
		if _, err := io.ReadFull(c.in, magic[:]); err != nil {
			return err
		}
		switch binary.BigEndian.Uint32(magic[:]) {
		case simpleMagic:
			var rest [12]byte
			if _, err := io.ReadFull(c.in, rest[:]); err != nil {
				return err
			}
			if binary.BigEndian.Uint64(rest[4:]) != c.cookie {
				return fmt.Errorf("%w: the answer to another request", errProtocol)
			}
			if code := binary.BigEndian.Uint32(rest[:]); code != 0 {
				return &Error{Errno: syscall.Errno(code)}
			}
			if t != nil {
				return fmt.Errorf("%w: an answer without data", errProtocol)
			}
			return nil
		case structuredMagic:
			done, err := c.chunk(t, &refused)
			if err != nil {
				return err
			}
			if !done {
				continue
			}
			if refused == nil && t != nil && !t.whole() {
				return fmt.Errorf("%w: the answer is too short", errProtocol)
			}
			return refused
		default:
			return fmt.Errorf("%w: not an answer", errProtocol)
		}
	}
	return fmt.Errorf("%w: an answer without end", errProtocol)
}

// chunk reads one chunk of a structured reply, without its magic number.
func (c *Conn) chunk(t taker, refused *error) (done bool, err error) {
	var head [16]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return false, err
	}
	done = binary.BigEndian.Uint16(head[:])&1 != 0
	kind, length := binary.BigEndian.Uint16(head[2:]), binary.BigEndian.Uint32(head[12:])
	if binary.BigEndian.Uint64(head[4:]) != c.cookie {
		return false, fmt.Errorf("%w: the answer to another request", errProtocol)
	}
	switch {
	case kind == chunkError || kind == chunkErrorOffset:
		if length < 6 || length > 1<<16 {
			return false, fmt.Errorf("%w: an error of %d bytes", errProtocol, length)
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(c.in, body); err != nil {
			return false, err
		}
		text := body[6:]
		text = text[:min(len(text), int(binary.BigEndian.Uint16(body[4:])))]
		*refused = &Error{Errno: syscall.Errno(binary.BigEndian.Uint32(body)), Message: string(text)}
		return done, nil
	case kind == chunkNone && length == 0:
		return done, nil
	case t == nil || length > MaxRequest+8:
		return false, fmt.Errorf("%w: a chunk of kind %d with %d bytes", errProtocol, kind, length)
	}
	return done, t.take(kind, int(length), c.in)
}

// reading takes the answer to a read.
type reading struct {
	into []byte
	at   int64
	got  int
}

func (r *reading) whole() bool { return r.got == len(r.into) }

func (r *reading) take(kind uint16, length int, in io.Reader) error {
	var head [12]byte
	n := map[uint16]int{chunkOffsetData: 8, chunkOffsetHole: 12}[kind]
	if n == 0 || length < n || kind == chunkOffsetHole && length != n {
		return fmt.Errorf("%w: a chunk of kind %d with %d bytes", errProtocol, kind, length)
	}
	if _, err := io.ReadFull(in, head[:n]); err != nil {
		return err
	}
	size := int64(length - n)
	if kind == chunkOffsetHole {
		size = int64(binary.BigEndian.Uint32(head[8:]))
	}
	from := int64(binary.BigEndian.Uint64(head[:])) - r.at //nolint:gosec // checked below
	// The protocol allows any order. QEMU answers in order, and so no byte is left out unnoticed.
	if from != int64(r.got) || size > int64(len(r.into))-from {
		return fmt.Errorf("%w: data outside of what was asked for", errProtocol)
	}
	r.got += int(size)
	part := r.into[from : from+size]
	if kind == chunkOffsetHole {
		clear(part)
		return nil
	}
	_, err := io.ReadFull(in, part)
	return err
}

// status takes the answer to a question about extents.
type status struct {
	context uint32
	at, end int64
	extents []Extent
}

func (s *status) whole() bool { return len(s.extents) > 0 }

func (s *status) take(kind uint16, length int, in io.Reader) error {
	if kind != chunkBlockStatus || length < 12 || (length-4)%8 != 0 || (length-4)/8 > maxExtents || s.whole() {
		return fmt.Errorf("%w: a chunk of kind %d with %d bytes", errProtocol, kind, length)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(in, body); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(body) != s.context {
		return fmt.Errorf("%w: another context", errProtocol)
	}
	for body = body[4:]; len(body) > 0 && s.at < s.end; body = body[8:] {
		// The last extent may reach beyond what was asked for.
		n := min(int64(binary.BigEndian.Uint32(body)), s.end-s.at)
		if n == 0 {
			return fmt.Errorf("%w: an empty extent", errProtocol)
		}
		s.extents = append(s.extents, Extent{s.at, n, binary.BigEndian.Uint32(body[4:])})
		s.at += n
	}
	return nil
}
