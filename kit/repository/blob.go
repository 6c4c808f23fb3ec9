package repository

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// ID names a backup, a writer or another object that is made once: random.
type ID [16]byte

func newID() (id ID) {
	rand.Read(id[:])
	return id
}

// String returns the id as 32 lower-case hex digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText returns String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(string(text))
	return err
}

// ParseID is the inverse of String. Faults name the field "id".
func ParseID(s string) (id ID, err error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(id) || hex.EncodeToString(raw) != s {
		return ID{}, fault.InvalidField("id", "must be 32 lower-case hex digits")
	}
	return ID(raw), nil
}

// blobID names a blob by its content: HMAC-SHA256 with a key of the domain. The zero id stands for
// zeros, which are not stored.
type blobID [sha256.Size]byte

// Kinds of blobs.
const (
	blockBlob   byte = 0 // a part of an item
	segmentBlob byte = 1 // a list of ids of blocks
)

// segmentBlocks is how many blocks a segment lists.
const segmentBlocks = 4096

// maxBlob is the largest blob before it is compressed, in bytes. A segment has 128 KiB.
const maxBlob = MaxBlockSize

// Encodings of what is in a sealed blob.
const (
	encodedRaw  byte = 0
	encodedZstd byte = 1
)

// coder turns contents into blobs and back. Each goroutine has its own.
type coder struct {
	d    *domain
	hash hash.Hash
	buf  []byte
}

func (d *domain) coder() *coder { return &coder{d: d, hash: hmac.New(sha256.New, d.ids)} }

// id returns the id of a content.
func (c *coder) id(kind byte, content []byte) (id blobID) {
	c.hash.Reset()
	c.hash.Write([]byte{kind})
	c.hash.Write(content)
	c.hash.Sum(id[:0])
	return id
}

func blobAAD(kind byte, id blobID, raw uint32) []byte {
	aad := make([]byte, 0, 4+1+len(id)+4)
	aad = append(append(aad, "blob"...), kind)
	aad = append(aad, id[:]...)
	return binary.BigEndian.AppendUint32(aad, raw)
}

// seal compresses a content if that helps, and seals it. The result is the caller's.
func (c *coder) seal(kind byte, id blobID, content []byte) []byte {
	c.buf = append(c.buf[:0], encodedZstd)
	c.buf = compressor().EncodeAll(content, c.buf)
	if len(c.buf)-1 > len(content)-len(content)/32 {
		c.buf = append(append(c.buf[:0], encodedRaw), content...)
	}
	sealed := make([]byte, 0, len(c.buf)+c.d.overhead())
	return c.d.seal(sealed, c.buf, blobAAD(kind, id, uint32(len(content))))
}

// open returns the content of a sealed blob in dst, which must have the capacity for it. It checks
// the hash too: a key holder's faulty memory may have sealed something else.
func (c *coder) open(dst []byte, kind byte, id blobID, raw uint32, sealed []byte) ([]byte, error) {
	var err error
	c.buf, err = c.d.open(c.buf[:0], sealed, blobAAD(kind, id, raw))
	if err != nil {
		return nil, err
	}
	if len(c.buf) == 0 {
		return nil, damaged("it is empty")
	}
	content, err := decode(dst, c.buf[0], c.buf[1:], int(raw))
	if err != nil {
		return nil, err
	}
	if c.id(kind, content) != id {
		return nil, damaged("its content does not have its id")
	}
	return content, nil
}

// decode undoes the compression. raw is the length of the result, at most maxBlob.
func decode(dst []byte, encoding byte, body []byte, raw int) ([]byte, error) {
	if raw > maxBlob {
		return nil, damaged("it claims to have %d bytes", raw)
	}
	switch encoding {
	case encodedRaw:
		dst = append(dst[:0], body...)
	case encodedZstd:
		// The capacity is the limit of the decoder.
		if cap(dst) < raw {
			dst = make([]byte, 0, raw)
		}
		var err error
		if dst, err = decompressor().DecodeAll(body, dst[:0:raw]); err != nil {
			return nil, damaged("it does not decompress")
		}
	default:
		return nil, damaged("it has the unknown encoding %d", encoding)
	}
	if len(dst) != raw {
		return nil, damaged("it has another length than it claims")
	}
	return dst, nil
}

// compressor and decompressor are shared; both bound their own concurrency.
var compressor = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(maxBlob),
		zstd.WithEncoderConcurrency(workers()), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // the options are constants that fit
	}
	return e
})

var decompressor = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(maxDecompressed),
		zstd.WithDecoderMaxWindow(maxDecompressed), zstd.WithDecoderConcurrency(workers()), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(err) // the options are constants that fit
	}
	return d
})

// workers is how many goroutines hash and compress.
func workers() int { return min(runtime.GOMAXPROCS(0), 16) }

func putUint64(p []byte, v uint64) { binary.BigEndian.PutUint64(p, v) }
