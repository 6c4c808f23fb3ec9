package repository

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	packMagic = "MSPACK1\n"
	// packTarget is the size from which a pack is finished, in bytes.
	packTarget = 16 << 20
	// maxPack bounds a pack that is read whole: the target, one more blob, and the trailer.
	maxPack = packTarget + 2*maxBlob + maxTrailer
	// maxTrailer bounds the list of blobs: those of a pack that has nothing but tiny ones.
	maxTrailer = 8 << 20
	entrySize  = 1 + 32 + 4 + 4
	// maxPackBlobs bounds the blobs of a pack.
	maxPackBlobs = 64 << 10
)

// packID names a pack: its writer, and which of the writer's packs it is.
type packID struct {
	writer ID
	number uint32
}

func (p packID) String() string { return fmt.Sprintf("%s-%08x", p.writer, p.number) }

// parseNumbered parses names such as that of a pack: an id, a hyphen and 8 hex digits.
func parseNumbered(s string) (id ID, number uint32, ok bool) {
	first, last, _ := strings.Cut(s, "-")
	id, err := ParseID(first)
	n, err2 := strconv.ParseUint(last, 16, 32)
	return id, uint32(n), err == nil && err2 == nil && len(last) == 8 && fmt.Sprintf("%08x", n) == last
}

func (d *domain) packName(p packID) string { return "packs/" + d.place + "/" + p.String() }

// packEntry is a blob in a pack. The blobs follow each other without gaps, so offsets are sums.
type packEntry struct {
	kind   byte
	id     blobID
	length uint32 // sealed, in bytes
	raw    uint32 // before it was compressed, in bytes
}

func appendEntries(dst []byte, entries []packEntry) []byte {
	for i := range entries {
		e := &entries[i]
		dst = append(append(dst, e.kind), e.id[:]...)
		dst = binary.BigEndian.AppendUint32(dst, e.length)
		dst = binary.BigEndian.AppendUint32(dst, e.raw)
	}
	return dst
}

// parseEntries is the inverse of appendEntries. It checks every bound.
func parseEntries(p []byte) ([]packEntry, error) {
	if len(p)%entrySize != 0 || len(p)/entrySize > maxPackBlobs {
		return nil, damaged("its list of blobs has a wrong length")
	}
	entries, sum := make([]packEntry, len(p)/entrySize), uint64(0)
	for i := range entries {
		e := &entries[i]
		e.kind, e.id = p[0], blobID(p[1:33])
		e.length, e.raw = binary.BigEndian.Uint32(p[33:]), binary.BigEndian.Uint32(p[37:])
		p = p[entrySize:]
		sum += uint64(e.length)
		if e.kind > segmentBlob || e.raw == 0 || e.raw > maxBlob || e.length == 0 || sum > maxPack {
			return nil, damaged("its list of blobs has an entry that cannot be")
		}
	}
	return entries, nil
}

// packBuilder collects sealed blobs.
type packBuilder struct {
	id      packID
	body    []byte
	entries []packEntry
}

func newPack(id packID) *packBuilder {
	return &packBuilder{id: id, body: append(make([]byte, 0, packTarget+packTarget/16), packMagic...)}
}

// add appends a blob and returns its offset.
func (p *packBuilder) add(e packEntry, sealed []byte) (offset uint32) {
	offset = uint32(len(p.body))
	p.body = append(p.body, sealed...)
	p.entries = append(p.entries, e)
	return offset
}

func (p *packBuilder) full() bool { return len(p.body) >= packTarget || len(p.entries) >= maxPackBlobs }

// finish returns the whole object: magic, blobs, trailer, length of the trailer.
func (p *packBuilder) finish(d *domain) []byte {
	before := len(p.body)
	list := compressor().EncodeAll(appendEntries(nil, p.entries), nil)
	p.body = d.seal(p.body, list, []byte(d.packName(p.id)))
	return binary.BigEndian.AppendUint32(p.body, uint32(len(p.body)-before))
}

// parseTrailer opens the trailer of a pack of a size. tail is the object's end: the trailer and its
// length.
func (d *domain) parseTrailer(id packID, size int64, tail []byte) ([]packEntry, error) {
	packed, err := d.open(nil, tail[:len(tail)-4], []byte(d.packName(id)))
	if err != nil {
		return nil, err
	}
	list, err := decompress(packed, maxPackBlobs*entrySize)
	if err != nil {
		return nil, err
	}
	entries, err := parseEntries(list)
	if err != nil {
		return nil, err
	}
	if sizeOf(entries)+int64(len(tail)) != size {
		return nil, damaged("its length is not that of its blobs")
	}
	return entries, nil
}

// sizeOf returns the length of a pack's magic and blobs, in bytes.
func sizeOf(entries []packEntry) int64 {
	sum := int64(len(packMagic))
	for i := range entries {
		sum += int64(entries[i].length)
	}
	return sum
}

// trailerLength checks the last four bytes of a pack and returns the length of what they end with.
func trailerLength(size int64, last []byte) (int64, error) {
	n := int64(binary.BigEndian.Uint32(last)) + 4
	if n > size-int64(len(packMagic)) || n > maxTrailer {
		return 0, damaged("its trailer has a length that cannot be")
	}
	return n, nil
}

// readTrailer reads the list of blobs from a pack itself.
func (r *Repository) readTrailer(ctx context.Context, d *domain, id packID, size int64) ([]packEntry, error) {
	if size < int64(len(packMagic))+4 || size > maxPack {
		return nil, damaged("it has %d bytes, which no pack has", size)
	}
	// Most trailers fit, so that one request is enough.
	tail := make([]byte, min(size, 64<<10))
	if err := r.store.GetRange(ctx, d.packName(id), size-int64(len(tail)), tail); err != nil {
		return nil, err
	}
	n, err := trailerLength(size, tail[len(tail)-4:])
	if err != nil {
		return nil, err
	}
	if n > int64(len(tail)) {
		tail = make([]byte, n)
		if err := r.store.GetRange(ctx, d.packName(id), size-n, tail); err != nil {
			return nil, err
		}
	}
	return d.parseTrailer(id, size, tail[int64(len(tail))-n:])
}

// parsePack parses a whole pack and calls each for its blobs.
func (d *domain) parsePack(id packID, pack []byte, each func(e *packEntry, sealed []byte) error) error {
	size := int64(len(pack))
	if size < int64(len(packMagic))+4 || string(pack[:len(packMagic)]) != packMagic {
		return damaged("it does not begin like a pack")
	}
	n, err := trailerLength(size, pack[size-4:])
	if err != nil {
		return err
	}
	entries, err := d.parseTrailer(id, size, pack[size-n:])
	if err != nil {
		return err
	}
	offset := len(packMagic)
	for i := range entries {
		end := offset + int(entries[i].length)
		if err := each(&entries[i], pack[offset:end]); err != nil {
			return err
		}
		offset = end
	}
	return nil
}

// encodeIndex and decodeIndex are the content of an index object before it is sealed: copies of the
// trailers of packs. An index saves requests; the packs have the truth.
type indexedPack struct {
	id      packID
	size    uint32 // of the object, in bytes
	entries []packEntry
}

const indexedHeader = 16 + 4 + 4 + 4

func encodeIndex(packs []indexedPack) []byte {
	var b []byte
	for i := range packs {
		p := &packs[i]
		b = append(b, p.id.writer[:]...)
		b = binary.BigEndian.AppendUint32(b, p.id.number)
		b = binary.BigEndian.AppendUint32(b, p.size)
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.entries)))
		b = appendEntries(b, p.entries)
	}
	return compressorOfIndexes.EncodeAll(b, nil)
}

// compressorOfIndexes is apart, since its window is larger.
var compressorOfIndexes, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))

func decodeIndex(packed []byte) (packs []indexedPack, err error) {
	b, err := decompress(packed, maxDecompressed)
	if err != nil {
		return nil, err
	}
	for len(b) > 0 {
		if len(b) < indexedHeader {
			return nil, damaged("it ends in the middle of a pack")
		}
		p := indexedPack{
			id:   packID{ID(b[:16]), binary.BigEndian.Uint32(b[16:])},
			size: binary.BigEndian.Uint32(b[20:]),
		}
		n := uint64(binary.BigEndian.Uint32(b[24:])) * entrySize
		b = b[indexedHeader:]
		if n > uint64(len(b)) {
			return nil, damaged("it ends in the middle of a pack")
		}
		if p.entries, err = parseEntries(b[:n]); err != nil {
			return nil, err
		}
		if sizeOf(p.entries) > int64(p.size) {
			return nil, damaged("a pack in it is smaller than its blobs")
		}
		packs, b = append(packs, p), b[n:]
	}
	return packs, nil
}
