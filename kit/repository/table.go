package repository

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"os"
	"slices"
	"sync"
)

// location is where a blob is.
type location struct {
	pack   uint32 // the number of the pack in its catalog
	offset uint32
	length uint32
	raw    uint32
}

type record struct {
	id blobID
	at location
}

const (
	recordSize = 32 + 4*4
	// runRecords is how many records are kept in memory before they are written as a run: some 8 MiB.
	runRecords = 64 << 10
	// tierRuns is how many runs of a tier are merged into one of the next.
	tierRuns = 8
)

// table maps ids of blobs to locations. However many there are, it keeps little in memory: records
// are sorted into temporary files ("runs"), and runs of like size are merged. It is safe for
// concurrent use.
//
// It costs 48 bytes of disk for each blob: 192 MiB for a TiB of blocks of 256 KiB, and about 1 MiB
// of memory for each of these TiBs.
type table struct {
	folder string
	limit  int // of records in memory
	lock   sync.RWMutex
	recent map[blobID]location
	tiers  [][]*run
}

func newTable(folder string) *table {
	return &table{folder: folder, limit: runRecords, recent: map[blobID]location{}}
}

// add adds a record. An id may have several.
func (t *table) add(id blobID, at location) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	if _, has := t.recent[id]; has || len(t.recent) >= t.limit {
		// Each record of an id must be in another run.
		if err := t.flush(); err != nil {
			return err
		}
	}
	t.recent[id] = at
	return nil
}

// has reports whether an id has a record.
func (t *table) has(id blobID) (bool, error) {
	found, err := t.find(id)
	return len(found) > 0, err
}

// find returns the locations of an id.
func (t *table) find(id blobID) (found []location, err error) {
	t.lock.RLock()
	defer t.lock.RUnlock()
	if at, has := t.recent[id]; has {
		found = append(found, at)
	}
	for _, tier := range t.tiers {
		for _, r := range tier {
			if found, err = r.find(found, id); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// flush writes what is in memory as a run.
func (t *table) flush() error {
	if len(t.recent) == 0 {
		return nil
	}
	records := make([]record, 0, len(t.recent))
	for id, at := range t.recent {
		records = append(records, record{id, at})
	}
	slices.SortFunc(records, func(a, b record) int { return bytes.Compare(a.id[:], b.id[:]) })
	w, err := newRun(t.folder, int64(len(records)))
	if err != nil {
		return err
	}
	for i := range records {
		if err := w.add(&records[i]); err != nil {
			return errors.Join(err, w.close())
		}
	}
	clear(t.recent)
	return t.keep(w, 0)
}

// keep takes a run into a tier. If that fills the tier, its runs become one of the next.
func (t *table) keep(r *run, tier int) error {
	if err := r.finish(); err != nil {
		return errors.Join(err, r.close())
	}
	if tier == len(t.tiers) {
		t.tiers = append(t.tiers, nil)
	}
	t.tiers[tier] = append(t.tiers[tier], r)
	if len(t.tiers[tier]) < tierRuns {
		return nil
	}
	merged, err := merge(t.folder, t.tiers[tier])
	if err != nil {
		return err
	}
	for _, old := range t.tiers[tier] {
		if err := old.close(); err != nil {
			return errors.Join(err, merged.close())
		}
	}
	t.tiers[tier] = nil
	return t.keep(merged, tier+1)
}

// close removes the files.
func (t *table) close() error {
	t.lock.Lock()
	defer t.lock.Unlock()
	var failed []error
	for _, tier := range t.tiers {
		for _, r := range tier {
			failed = append(failed, r.close())
		}
	}
	t.tiers, t.recent = nil, nil
	return errors.Join(failed...)
}

// run is a temporary file of sorted records. Ids are uniformly distributed, so their first bits tell
// where to look.
type run struct {
	file   *os.File
	out    *bufio.Writer
	count  int64
	shift  int     // how many of the first 32 bits are not looked at
	starts []int64 // the number of the first record of each slot, and of all
	slot   int
}

// newRun begins a run of at most count records.
func newRun(folder string, count int64) (*run, error) {
	f, err := os.CreateTemp(folder, "mainstay-index-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil { // it lives as long as it is open
		return nil, errors.Join(err, f.Close())
	}
	width := min(22, bits.Len64(uint64(count)/16))
	return &run{file: f, out: bufio.NewWriterSize(f, 64<<10), shift: 32 - width, starts: make([]int64, 1<<width+1)}, nil
}

func (r *run) slotOf(id *blobID) int { return int(uint64(binary.BigEndian.Uint32(id[:])) >> r.shift) }

func (r *run) add(rec *record) error {
	for s := r.slotOf(&rec.id); r.slot < s; {
		r.slot++
		r.starts[r.slot] = r.count
	}
	r.count++
	var b [recordSize]byte
	copy(b[:], rec.id[:])
	binary.BigEndian.PutUint32(b[32:], rec.at.pack)
	binary.BigEndian.PutUint32(b[36:], rec.at.offset)
	binary.BigEndian.PutUint32(b[40:], rec.at.length)
	binary.BigEndian.PutUint32(b[44:], rec.at.raw)
	_, err := r.out.Write(b[:])
	return err
}

func (r *run) finish() error {
	for r.slot < len(r.starts)-1 {
		r.slot++
		r.starts[r.slot] = r.count
	}
	err := r.out.Flush()
	r.out = nil
	return err
}

func (r *run) close() error { return r.file.Close() }

func parseRecord(b []byte) record {
	return record{blobID(b[:32]), location{
		binary.BigEndian.Uint32(b[32:]), binary.BigEndian.Uint32(b[36:]),
		binary.BigEndian.Uint32(b[40:]), binary.BigEndian.Uint32(b[44:]),
	}}
}

// find appends the locations of an id to found.
func (r *run) find(found []location, id blobID) ([]location, error) {
	s := r.slotOf(&id)
	first, end := r.starts[s], r.starts[s+1]
	var small [64 * recordSize]byte
	for first < end {
		n := min(end-first, int64(len(small)/recordSize))
		part := small[:n*recordSize]
		if _, err := r.file.ReadAt(part, first*recordSize); err != nil {
			return nil, err
		}
		for ; len(part) > 0; part = part[recordSize:] {
			if order := bytes.Compare(part[:32], id[:]); order == 0 {
				found = append(found, parseRecord(part).at)
			} else if order > 0 {
				return found, nil
			}
		}
		first += n
	}
	return found, nil
}

// merge returns an unfinished run with the records of others.
func merge(folder string, runs []*run) (*run, error) {
	type head struct {
		in   *bufio.Reader
		next record
	}
	var total int64
	var heads []*head
	advance := func(h *head) (bool, error) {
		var b [recordSize]byte
		if _, err := io.ReadFull(h.in, b[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return false, nil
			}
			return false, err
		}
		h.next = parseRecord(b[:])
		return true, nil
	}
	for _, r := range runs {
		total += r.count
		h := &head{in: bufio.NewReaderSize(io.NewSectionReader(r.file, 0, r.count*recordSize), 64<<10)}
		if more, err := advance(h); err != nil {
			return nil, err
		} else if more {
			heads = append(heads, h)
		}
	}
	merged, err := newRun(folder, total)
	if err != nil {
		return nil, err
	}
	for len(heads) > 0 {
		least := slices.MinFunc(heads, func(a, b *head) int {
			return cmp.Or(bytes.Compare(a.next.id[:], b.next.id[:]), cmp.Compare(a.next.at.pack, b.next.at.pack))
		})
		if err := merged.add(&least.next); err != nil {
			return nil, errors.Join(err, merged.close())
		}
		more, err := advance(least)
		if err != nil {
			return nil, errors.Join(err, merged.close())
		}
		if !more {
			heads = slices.DeleteFunc(heads, func(h *head) bool { return h == least })
		}
	}
	return merged, nil
}
