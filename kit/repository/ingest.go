package repository

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

// Range is a part of a disk, in bytes.
type Range struct{ Offset, Length int64 }

// Disk is what is to be backed up of a disk.
type Disk struct {
	Name string
	Size int64 // in bytes
	// Reader reads the whole disk as it was at one moment. It is used by several goroutines. Blocks
	// are read whole, so it is asked for what is near Changed too.
	Reader io.ReaderAt
	// Whole says to read the whole disk. Otherwise only Changed is read, and the rest is that of the
	// same item of the parent, or zeros if there is no parent. Where the sizes differ, the difference
	// is read.
	Whole   bool
	Changed []Range
}

// maxName bounds the name of an item, in bytes.
const maxItemName = 256

func (w *Writer) checkName(name string) error {
	if name == "" || len(name) > maxItemName {
		return fault.InvalidField("name", "must have 1 to %d bytes", maxItemName)
	}
	if _, err := w.backup.item(name); err == nil {
		return fault.InvalidField("name", "the backup has an item %q already", name)
	}
	if len(w.backup.Items) == maxItems {
		return fault.New(fault.TooLarge, "a backup has at most %d items", maxItems)
	}
	return nil
}

// Disk writes a disk. After an error, the Writer can only be aborted.
func (w *Writer) Disk(disk Disk) error {
	if err := w.checkName(disk.Name); err != nil {
		return err
	}
	if segmentsOf(disk.Size, w.r.config.BlockSize) < 0 || disk.Size < 0 {
		return fault.InvalidField("size", "%d bytes are too many, or fewer than none", disk.Size)
	}
	var base *Item
	var from *Reader
	if w.backup.Parent != nil && !disk.Whole {
		parent, err := w.r.get(w.ctx, w.d, *w.backup.Parent)
		if err != nil {
			return err
		}
		if base, err = parent.item(disk.Name); err != nil {
			return err
		}
		cats := newShelf(w.r, w.d, w.cat)
		defer cats.close(1) // the first one is the Writer's
		from = newReader(w.r, w.d, cats, base)
	}
	read, err := changedBlocks(disk, base, int64(w.r.config.BlockSize))
	if err != nil {
		return err
	}
	in := w.ingest(Item{Name: disk.Name, Size: disk.Size})
	in.total = disk.Size
	defer in.close()
	for first := int64(0); first < in.blocks(); first += segmentBlocks {
		n := min(segmentBlocks, in.blocks()-first)
		ids := make([]blobID, n)
		todo, err := in.copy(ids, first, from, read)
		if err == nil {
			err = in.run(ids, first, todo, disk.Reader)
		}
		if err == nil {
			err = in.segment(ids)
		}
		if err != nil {
			return w.cause(err)
		}
	}
	w.backup.Items = append(w.backup.Items, in.item)
	return nil
}

// Stream writes an item from a reader until its end: a configuration or a memory state.
func (w *Writer) Stream(name string, from io.Reader) error {
	if err := w.checkName(name); err != nil {
		return err
	}
	in := w.ingest(Item{Name: name})
	defer in.close()
	block, end := make([]byte, w.r.config.BlockSize), false
	var ids []blobID
	for !end {
		n, err := io.ReadFull(from, block)
		end = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !end {
			return w.cause(err)
		}
		if n > 0 {
			in.item.Size += int64(n)
			ids = append(ids, blobID{})
			if err := in.collect(w.ctx, in.process(w.code, &job{slot: len(ids) - 1, content: block[:n]}), ids); err != nil {
				return w.cause(err)
			}
		}
		if len(ids) == segmentBlocks || end && len(ids) > 0 {
			if err := in.segment(ids); err != nil {
				return w.cause(err)
			}
			ids = ids[:0]
		}
	}
	w.backup.Items = append(w.backup.Items, in.item)
	return nil
}

// changedBlocks returns which blocks must be read, as sorted ranges of block numbers that do not
// overlap.
func changedBlocks(disk Disk, base *Item, blockSize int64) ([]Range, error) {
	if disk.Whole {
		return []Range{{0, (disk.Size + blockSize - 1) / blockSize}}, nil
	}
	var all []Range
	add := func(from, to int64) { all = append(all, Range{from / blockSize, (to + blockSize - 1) / blockSize}) }
	for _, c := range disk.Changed {
		if c.Offset < 0 || c.Length < 0 || c.Offset > disk.Size || c.Length > disk.Size-c.Offset {
			return nil, fault.InvalidField("changed", "the range of %d bytes from %d on is not within the disk", c.Length, c.Offset)
		}
		if c.Length > 0 {
			add(c.Offset, c.Offset+c.Length)
		}
	}
	if base != nil && base.Size != disk.Size {
		// The last block of the shorter one is cut there, so it is another block.
		if from := min(base.Size, disk.Size) / blockSize * blockSize; from < disk.Size {
			add(from, disk.Size)
		}
	}
	slices.SortFunc(all, func(a, b Range) int { return int(a.Offset - b.Offset) })
	var merged []Range // of first and end for now
	for _, c := range all {
		if last := len(merged) - 1; last >= 0 && c.Offset <= merged[last].Length {
			merged[last].Length = max(merged[last].Length, c.Length)
		} else {
			merged = append(merged, c)
		}
	}
	for i := range merged {
		merged[i].Length -= merged[i].Offset
	}
	return merged, nil
}

// ingest turns blocks into blobs for one item.
type ingest struct {
	w       *Writer
	item    Item
	total   int64
	done    int64
	jobs    chan *job
	results chan *job
	stopped <-chan error
}

// job is a block on its way.
type job struct {
	slot    int // in the list of the segment
	from    io.ReaderAt
	offset  int64
	length  int
	content []byte // of the caller's, if from is nil

	id     blobID
	raw    uint32
	sealed []byte // nil: zeros, or known already
	err    error
}

func (w *Writer) ingest(item Item) *ingest {
	return &ingest{w: w, item: item}
}

// blocks returns how many blocks the item has.
func (in *ingest) blocks() int64 {
	size := int64(in.w.r.config.BlockSize)
	return (in.item.Size + size - 1) / size
}

func (in *ingest) lengthOf(block int64) int {
	size := int64(in.w.r.config.BlockSize)
	return int(min(size, in.item.Size-block*size))
}

// copy fills the list of a segment from the parent, and returns the jobs for the others. What the
// parent has only in packs that will be removed is read from there and stored again.
func (in *ingest) copy(ids []blobID, first int64, from *Reader, read []Range) ([]*job, error) {
	var todo []*job
	var parents []blobID
	if from != nil {
		var err error
		if parents, err = from.segmentAt(in.w.ctx, first/segmentBlocks); err != nil {
			return nil, err
		}
	}
	for i := range ids {
		block := first + int64(i)
		one := &job{slot: i, offset: block * int64(in.w.r.config.BlockSize), length: in.lengthOf(block)}
		at, _ := slices.BinarySearchFunc(read, block, func(r Range, b int64) int {
			if r.Offset+r.Length <= b {
				return -1
			}
			return 1
		})
		switch {
		case at < len(read) && read[at].Offset <= block:
			todo = append(todo, one)
			continue
		case i < len(parents) && parents[i] != blobID{}:
			has, err := in.w.cat.fresh.has(parents[i])
			if err != nil {
				return nil, err
			}
			if !has {
				one.from = from
				todo = append(todo, one)
				continue
			}
			ids[i] = parents[i]
		}
		in.done += int64(one.length)
	}
	return todo, nil
}

// start starts the goroutines that read, hash, compress and seal.
func (in *ingest) start(ctx context.Context) {
	if in.jobs != nil {
		return
	}
	n := max(minReaders, workers())
	in.jobs, in.results = make(chan *job), make(chan *job, n)
	var all []<-chan error
	for range n {
		all = append(all, routine.Start(in.w.r.options.Log, "backup block", func() error {
			code, buf := in.w.d.coder(), make([]byte, in.w.r.config.BlockSize)
			for j := range in.jobs {
				j.content = buf
				in.results <- in.safely(code, j)
			}
			return nil
		}))
	}
	in.stopped = routine.Start(in.w.r.options.Log, "backup blocks", func() error {
		var failed []error
		for _, one := range all {
			failed = append(failed, <-one)
		}
		return errors.Join(failed...)
	})
}

// safely is process. A panic of the disk's reader fails the job instead of losing it.
func (in *ingest) safely(code *coder, j *job) *job {
	if err := routine.Call(in.w.r.options.Log, "backup block", func() error {
		in.process(code, j)
		return nil
	}); err != nil {
		j.err = err
	}
	return j
}

// close ends the goroutines. Their results are not needed any more.
func (in *ingest) close() {
	if in.jobs != nil {
		close(in.jobs)
		<-in.stopped //nolint:errcheck // what failed is in the results
	}
}

// run reads and stores blocks and enters them into the list.
func (in *ingest) run(ids []blobID, first int64, todo []*job, disk io.ReaderAt) error {
	if len(todo) == 0 {
		return in.w.ctx.Err()
	}
	in.start(in.w.ctx)
	running := 0
	var failed error
	for len(todo) > 0 && failed == nil || running > 0 {
		var jobs chan *job
		var next *job
		if len(todo) > 0 && failed == nil {
			jobs, next = in.jobs, todo[0]
			if next.from == nil {
				next.from = disk
			}
		}
		select {
		case jobs <- next:
			todo, running = todo[1:], running+1
		case j := <-in.results:
			running--
			if failed == nil {
				failed = in.collect(in.w.ctx, j, ids)
			}
		}
		if failed == nil {
			failed = in.w.ctx.Err()
		}
	}
	return failed
}

// process reads, hashes, compresses and seals a block.
func (in *ingest) process(code *coder, j *job) *job {
	if j.from != nil {
		j.content = j.content[:j.length]
		if n, err := j.from.ReadAt(j.content, j.offset); n < len(j.content) {
			if err == nil || errors.Is(err, io.EOF) {
				err = fault.New(fault.Invalid, "the disk ended at %d bytes, before its size", j.offset+int64(n))
			}
			j.err = err
			return j
		}
	}
	j.raw = uint32(len(j.content))
	if allZero(j.content) {
		return j
	}
	j.id = code.id(blockBlob, j.content)
	has, err := in.w.cat.fresh.has(j.id)
	if err != nil {
		j.err = err
	} else if !has {
		j.sealed = code.seal(blockBlob, j.id, j.content)
	}
	return j
}

// collect takes a processed block into a pack and the list.
func (in *ingest) collect(ctx context.Context, j *job, ids []blobID) error {
	if j.err != nil {
		return j.err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	in.item.Read += int64(j.raw)
	in.done += int64(j.raw)
	ids[j.slot] = j.id
	if j.sealed != nil {
		stored, err := in.w.packs.add(ctx, packEntry{kind: blockBlob, id: j.id, raw: j.raw}, j.sealed)
		if err != nil {
			return err
		}
		if stored > 0 {
			in.item.New += int64(j.raw)
			in.item.Stored += stored
		}
		j.sealed = nil // the segment keeps its jobs until its end; with their content, they would be 1 GiB
	}
	if in.w.progress != nil {
		in.w.progress(Progress{in.done, in.total, in.item.Read, in.item.New, in.item.Stored})
	}
	return nil
}

// segment stores a list of blocks.
func (in *ingest) segment(ids []blobID) error {
	content, any := make([]byte, 0, len(ids)*len(blobID{})), false
	for i := range ids {
		content = append(content, ids[i][:]...)
		any = any || ids[i] != blobID{}
	}
	id := blobID{}
	if any {
		id = in.w.code.id(segmentBlob, content)
		has, err := in.w.cat.fresh.has(id)
		if err != nil {
			return err
		}
		if !has {
			e := packEntry{kind: segmentBlob, id: id, raw: uint32(len(content))}
			if _, err := in.w.packs.add(in.w.ctx, e, in.w.code.seal(segmentBlob, id, content)); err != nil {
				return err
			}
		}
	}
	in.item.Segments = append(in.item.Segments, id[:]...)
	return nil
}

func allZero(p []byte) bool {
	for len(p) >= 8 {
		if p[0]|p[1]|p[2]|p[3]|p[4]|p[5]|p[6]|p[7] != 0 {
			return false
		}
		p = p[8:]
	}
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
