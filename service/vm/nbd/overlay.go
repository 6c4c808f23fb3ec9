package nbd

import (
	"context"
	"errors"
	"sync"
)

// Source is a disk that is only read. Reads are in its bounds.
type Source interface {
	Size() int64 // in bytes
	ReadAtContext(ctx context.Context, p []byte, offset int64) (int, error)
}

// pageSize is the unit in which an Overlay keeps what was written, in bytes.
const pageSize = 4 << 10

// ErrFull is returned for a write for which an Overlay has no room.
var ErrFull = errors.New("nbd: there is no room for what is written")

// Overlay is a disk in memory above a Source. It exists for file systems that have to replay their
// journals before they can be read. It is safe for concurrent use.
type Overlay struct {
	below Source
	most  int // pages

	mu    sync.RWMutex
	pages map[int64]*[pageSize]byte // by their numbers
}

// NewOverlay returns an Overlay that keeps at most limit bytes of what is written.
func NewOverlay(below Source, limit int64) *Overlay {
	return &Overlay{below: below, most: int(limit / pageSize), pages: map[int64]*[pageSize]byte{}}
}

// Size returns the size of the disk, in bytes.
func (o *Overlay) Size() int64 { return o.below.Size() }

// ReadAt fills p from an offset. Both must be in the bounds of the disk.
func (o *Overlay) ReadAt(ctx context.Context, p []byte, offset int64) error {
	if n, err := o.below.ReadAtContext(ctx, p, offset); n < len(p) {
		return err
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	if len(o.pages) == 0 {
		return nil
	}
	for number := offset / pageSize; number*pageSize < offset+int64(len(p)); number++ {
		if page := o.pages[number]; page != nil {
			at := number*pageSize - offset
			if at < 0 {
				copy(p, page[-at:])
			} else {
				copy(p[at:], page[:])
			}
		}
	}
	return nil
}

// WriteAt writes p at an offset. Both must be in the bounds of the disk. It fails with ErrFull, and
// may then have written a part.
func (o *Overlay) WriteAt(ctx context.Context, p []byte, offset int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(p) > 0 {
		number, within := offset/pageSize, offset%pageSize
		page := o.pages[number]
		if page == nil {
			if len(o.pages) >= o.most {
				return ErrFull
			}
			page = new([pageSize]byte)
			if whole := min(pageSize, o.Size()-number*pageSize); int64(len(p)) < whole || within != 0 {
				if n, err := o.below.ReadAtContext(ctx, page[:whole], number*pageSize); int64(n) < whole {
					return err
				}
			}
			o.pages[number] = page
		}
		n := copy(page[within:], p)
		p, offset = p[n:], offset+int64(n)
	}
	return nil
}
