package repository

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	// batchBytes is how much of an item is restored by one goroutine at a time.
	batchBytes = 4 << 20
	// minReaders read ahead even on few processors, since what they read from may answer slowly.
	minReaders = 4
	// maxGap is how many bytes are read in vain rather than with one more request.
	maxGap = 64 << 10
)

// RestoreOptions say how to restore.
type RestoreOptions struct {
	// WriteZeros writes zeros too. Without it, the target must read as zeros where nothing is
	// written, as a new file does.
	WriteZeros bool
	// Only are the parts that are restored, with some of what is around them; nil: all of it.
	Only []Range
	// Progress, unless nil, is called with the bytes that are done, one call at a time.
	Progress func(done, total int64)
}

// batches returns the first blocks of the batches that are to be restored, in order.
func (o *RestoreOptions) batches(size, blockSize, perBatch int64) (firsts []int64) {
	parts := o.Only
	if parts == nil {
		parts = []Range{{0, size}}
	}
	for _, r := range parts {
		end := min(r.Offset+r.Length, size)
		for first := r.Offset / blockSize / perBatch * perBatch; r.Offset >= 0 && first*blockSize < end; first += perBatch {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return slices.Compact(firsts)
}

// WriteTo restores the item into w, which is used by several goroutines. It reads ahead, and in
// pieces as large as the packs allow. It keeps at most some 64 MiB in memory.
func (v *Reader) WriteTo(ctx context.Context, w io.WriterAt, o RestoreOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	perBatch := max(1, batchBytes/int64(v.r.config.BlockSize))
	blocks := (v.item.Size + int64(v.r.config.BlockSize) - 1) / int64(v.r.config.BlockSize)
	batches, finished := make(chan int64), make(chan int64)
	firsts := o.batches(v.item.Size, int64(v.r.config.BlockSize), perBatch)
	bytesOf := func(first int64) int64 {
		return min(perBatch*int64(v.r.config.BlockSize), v.item.Size-first*int64(v.r.config.BlockSize))
	}
	var total int64
	for _, first := range firsts {
		total += bytesOf(first)
	}
	var all []<-chan error
	for range max(minReaders, workers()) {
		all = append(all, routine.Start(v.r.options.Log, "restore", func() (err error) {
			defer func() { cancel(cmp.Or(err, errStop)) }() // a panic ends the others as well
			b := newBatch(v)
			for first := range batches {
				if err := b.restore(ctx, first, min(perBatch, blocks-first), w, o.WriteZeros); err != nil {
					return err
				}
				select {
				case finished <- first:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			<-ctx.Done() // only the first one to fail, or the end, ends all
			return nil
		}))
	}
	var done int64
	failed := error(nil)
	for done < total && failed == nil {
		var out chan int64
		next := int64(0)
		if len(firsts) > 0 {
			out, next = batches, firsts[0]
		}
		select {
		case out <- next:
			firsts = firsts[1:]
		case first := <-finished:
			done += bytesOf(first)
			if o.Progress != nil {
				o.Progress(done, total)
			}
		case <-ctx.Done():
			failed = context.Cause(ctx)
		}
	}
	close(batches)
	cancel(errStop)
	for _, one := range all {
		if err := <-one; err != nil && (failed == nil || errors.Is(failed, errStop)) {
			failed = err
		}
	}
	return failed
}

// batch restores consecutive blocks.
type batch struct {
	v     *Reader
	code  *coder
	read  []byte
	plain []byte
	zeros []byte
}

func newBatch(v *Reader) *batch { return &batch{v: v, code: v.d.coder()} }

// piece is a block to be read.
type piece struct {
	block int64
	id    blobID
	at    location
}

func (b *batch) restore(ctx context.Context, first, n int64, w io.WriterAt, zeros bool) error {
	v, size := b.v, int64(b.v.r.config.BlockSize)
	var pieces []piece
	cat := v.cats.newest()
	for block := first; block < first+n; block++ {
		ids, err := v.segmentAt(ctx, block/segmentBlocks)
		if err != nil {
			return err
		}
		if ids == nil || ids[block%segmentBlocks] == (blobID{}) {
			if zeros {
				if b.zeros == nil {
					b.zeros = make([]byte, size)
				}
				if err := write(w, b.zeros[:v.lengthOf(block)], block*size); err != nil {
					return err
				}
			}
			continue
		}
		p := piece{block: block, id: ids[block%segmentBlocks]}
		found, err := cat.find(p.id)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			p.at = found[0]
			pieces = append(pieces, p)
			continue
		}
		if b.plain, err = v.blob(ctx, b.code, nil, blockBlob, p.id); err != nil {
			return err
		}
		if err := b.write(w, block); err != nil {
			return err
		}
	}
	slices.SortFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.at.pack, b.at.pack), cmp.Compare(a.at.offset, b.at.offset))
	})
	for len(pieces) > 0 {
		run := 1
		end := uint64(pieces[0].at.offset) + uint64(pieces[0].at.length)
		for run < len(pieces) && pieces[run].at.pack == pieces[0].at.pack && uint64(pieces[run].at.offset) <= end+maxGap {
			end = max(end, uint64(pieces[run].at.offset)+uint64(pieces[run].at.length))
			run++
		}
		if err := b.together(ctx, cat, pieces[:run], end, w); err != nil {
			return err
		}
		pieces = pieces[run:]
	}
	return nil
}

// together restores blocks that lie close to each other in a pack, which one request reads.
func (b *batch) together(
	ctx context.Context, cat *catalog, pieces []piece, end uint64, w io.WriterAt,
) error {
	v, start := b.v, uint64(pieces[0].at.offset)
	if uint64(cap(b.read)) < end-start {
		b.read = make([]byte, end-start)
	}
	b.read = b.read[:end-start]
	name := v.d.packName(cat.pack(pieces[0].at.pack))
	readable := v.r.store.GetRange(ctx, name, int64(start), b.read)
	if readable != nil && !isDamaged(readable) && !notExist(readable) {
		return readable
	}
	for i := range pieces {
		p := &pieces[i]
		from := uint64(p.at.offset) - start
		err := readable
		if err == nil {
			b.plain, err = b.code.open(b.plain[:0], blockBlob, p.id, p.at.raw, b.read[from:from+uint64(p.at.length)])
		}
		if err != nil { // another copy may be whole
			if b.plain, err = v.blob(ctx, b.code, nil, blockBlob, p.id); err != nil {
				return err
			}
		}
		if err := b.write(w, p.block); err != nil {
			return err
		}
	}
	return nil
}

// write writes the block that was decoded.
func (b *batch) write(w io.WriterAt, block int64) error {
	if len(b.plain) != b.v.lengthOf(block) {
		return damaged("a block of the item %q has a wrong length", b.v.item.Name)
	}
	return write(w, b.plain, block*int64(b.v.r.config.BlockSize))
}

func write(w io.WriterAt, p []byte, offset int64) error {
	if _, err := w.WriteAt(p, offset); err != nil {
		if f := fault.From(err); f.Kind != fault.Internal {
			return f
		}
		return fault.Wrap(fault.StorageFailed, err, "the restored data cannot be written")
	}
	return nil
}
