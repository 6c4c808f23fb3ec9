package wire

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
)

// Magic starts a preamble. Its first byte does not occur in frames.
const Magic = "\xffMSTGST\x01"

// Nonce distinguishes the response to a preamble from responses to earlier ones. None of its bytes
// is the first of Magic, so a preamble is found even after a truncated one.
type Nonce [8]byte

// NewNonce returns a random nonce.
func NewNonce() (n Nonce) {
	_, _ = rand.Read(n[:]) // never fails
	for i := range n {
		n[i] &= 0x7f
	}
	return n
}

const preambleSize = len(Magic) + len(Nonce{})

// Preamble returns the bytes that start a session, and those that answer them.
func (n Nonce) Preamble() []byte { return append([]byte(Magic), n[:]...) }

// Reader reads preambles and frames. It is not safe for concurrent use.
type Reader struct {
	buffered *bufio.Reader
	frame    []byte // grows to what was the largest frame
	data     []byte
}

// NewReader returns a Reader of r. It holds at most a few frames of bytes.
func NewReader(r io.Reader) *Reader {
	return &Reader{buffered: bufio.NewReaderSize(r, 32<<10)}
}

// Preamble discards everything up to and including a preamble, with the nonce want if that is not
// nil, and returns its nonce. It fails after limit bytes unless limit is 0. After a stream error it
// can be called again.
func (r *Reader) Preamble(want *Nonce, limit int) (Nonce, error) {
	for skipped := 0; ; {
		b, err := r.buffered.Peek(preambleSize)
		if err != nil {
			return Nonce{}, err
		}
		skip := bytes.IndexByte(b, Magic[0])
		switch {
		case skip < 0:
			skip = len(b)
		case skip == 0:
			nonce := Nonce(b[len(Magic):])
			whole := string(b[:len(Magic)]) == Magic && bytes.IndexByte(nonce[:], Magic[0]) < 0
			if whole && (want == nil || *want == nonce) {
				_, err := r.buffered.Discard(preambleSize)
				return nonce, err
			}
			skip = 1
		}
		if skipped += skip; limit > 0 && skipped > limit {
			return Nonce{}, fmt.Errorf("%w: no answer to the preamble in the first %d bytes", ErrMalformed, limit)
		}
		if _, err := r.buffered.Discard(skip); err != nil {
			return Nonce{}, err
		}
	}
}

// Frame returns the next frame, whose Data is valid until the next call. It fails with
// ErrMalformed, without consuming a preamble, or with the stream's error.
func (r *Reader) Frame() (Frame, error) {
	b, err := r.buffered.Peek(1)
	if err != nil {
		return Frame{}, err
	}
	if b[0] == Magic[0] {
		return Frame{}, fmt.Errorf("%w: a preamble in the place of a frame", ErrMalformed)
	}
	r.frame = r.frame[:0]
	if err := r.fill(header); err != nil {
		return Frame{}, err
	}
	size := binary.BigEndian.Uint32(r.frame)
	if size == 0 || size > MaxFrame {
		return Frame{}, fmt.Errorf("%w: of %d bytes, where 1 to %d are allowed", ErrMalformed, size, MaxFrame)
	}
	r.frame = r.frame[:0]
	if err := r.fill(int(size)); err != nil {
		return Frame{}, err
	}
	if r.data == nil {
		r.data = make([]byte, 0, MaxChunk+8)
	}
	return decode(r.frame, r.data)
}

// fill reads n bytes into r.frame as they arrive, so that a length alone allocates no memory. It
// stops before the first byte of a preamble.
func (r *Reader) fill(n int) error {
	for n > 0 {
		if _, err := r.buffered.Peek(1); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		b, _ := r.buffered.Peek(min(n, r.buffered.Buffered()))
		end := bytes.IndexByte(b, Magic[0])
		if end >= 0 {
			b = b[:end]
		}
		r.frame = append(r.frame, b...)
		n -= len(b)
		if _, err := r.buffered.Discard(len(b)); err != nil {
			return err
		}
		if end >= 0 {
			return fmt.Errorf("%w: a byte in it that begins a preamble", ErrMalformed)
		}
	}
	return nil
}
