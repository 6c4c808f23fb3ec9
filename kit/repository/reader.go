package repository

import (
	"container/list"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// cachedBlocks is how many decoded blocks and segments a Reader keeps.
const (
	cachedBlocks   = 32
	cachedSegments = 4
)

// View is a backup that is open for reading.
type View struct {
	Backup *Backup
	r      *Repository
	d      *domain
	cats   *shelf
}

// shelf holds the catalogs of readers. A prune may move blobs while somebody reads: then the reader
// looks again. The old catalog stays until all is closed, since others may be using it.
type shelf struct {
	r    *Repository
	d    *domain
	turn chan struct{} // full while a catalog is read
	lock sync.Mutex
	all  []*catalog // the last one is the newest
}

func newShelf(r *Repository, d *domain, first *catalog) *shelf {
	return &shelf{r: r, d: d, turn: make(chan struct{}, 1), all: []*catalog{first}}
}

func (s *shelf) newest() *catalog {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.all[len(s.all)-1]
}

// renew returns a catalog that is newer than old.
func (s *shelf) renew(ctx context.Context, old *catalog) (*catalog, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if last := s.newest(); last != old {
		return last, nil
	}
	c, err := s.r.load(ctx, s.d)
	if err != nil {
		return nil, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.all = append(s.all, c)
	return c, nil
}

// close closes the catalogs from number first on.
func (s *shelf) close(first int) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	var failed []error
	for _, c := range s.all[first:] {
		failed = append(failed, c.close())
	}
	s.all = s.all[:first]
	return errors.Join(failed...)
}

// View opens a backup of a tenant for reading.
func (r *Repository) View(ctx context.Context, tenant string, id ID) (*View, error) {
	d := r.domainAt(r.place(tenant))
	b, err := r.get(ctx, d, id)
	if err != nil {
		return nil, err
	}
	cat, err := r.load(ctx, d)
	if err != nil {
		return nil, err
	}
	return &View{b, r, d, newShelf(r, d, cat)}, nil
}

// Close frees what the View holds. Its Readers must not be used any more.
func (v *View) Close() error { return v.cats.close(0) }

// Item returns a reader of an item.
func (v *View) Item(name string) (*Reader, error) {
	it, err := v.Backup.item(name)
	if err != nil {
		return nil, err
	}
	return newReader(v.r, v.d, v.cats, it), nil
}

// Reader reads an item of a backup at any place. Everything it returns was authenticated. It is safe
// for concurrent use. Beside what it returns it keeps at most 32 blocks in memory.
type Reader struct {
	r    *Repository
	d    *domain
	cats *shelf
	item *Item

	lock     sync.Mutex
	blocks   lru[int64, []byte]
	segments lru[int64, []blobID]
}

func newReader(r *Repository, d *domain, cats *shelf, it *Item) *Reader {
	return &Reader{r: r, d: d, cats: cats, item: it,
		blocks: newLRU[int64, []byte](cachedBlocks), segments: newLRU[int64, []blobID](cachedSegments)}
}

// Size returns the size of the item, in bytes.
func (v *Reader) Size() int64 { return v.item.Size }

// segmentAt returns the ids of the blocks that a segment lists; nil if all are zeros.
func (v *Reader) segmentAt(ctx context.Context, i int64) ([]blobID, error) {
	n := int64(len(v.item.Segments) / len(blobID{}))
	if i >= n {
		return nil, nil
	}
	id := v.item.segment(i)
	if id == (blobID{}) {
		return nil, nil
	}
	v.lock.Lock()
	ids, has := v.segments.get(i)
	v.lock.Unlock()
	if has {
		return ids, nil
	}
	content, err := v.blob(ctx, v.d.coder(), nil, segmentBlob, id)
	if err != nil {
		return nil, err
	}
	size := int64(v.r.config.BlockSize)
	blocks := min(segmentBlocks, (v.item.Size+size-1)/size-i*segmentBlocks)
	if int64(len(content)) != blocks*int64(len(id)) {
		return nil, damaged("a list of blocks does not fit the item %q", v.item.Name)
	}
	ids = make([]blobID, blocks)
	for at := range ids {
		ids[at] = blobID(content[at*len(id):])
	}
	v.lock.Lock()
	v.segments.put(i, ids)
	v.lock.Unlock()
	return ids, nil
}

// blob reads one blob. If its packs are gone, it looks where they went.
func (v *Reader) blob(ctx context.Context, code *coder, dst []byte, kind byte, id blobID) ([]byte, error) {
	cat := v.cats.newest()
	content, moved, err := v.blobIn(ctx, cat, code, dst, kind, id)
	if !moved {
		return content, err
	}
	if cat, err = v.cats.renew(ctx, cat); err != nil {
		return nil, err
	}
	content, _, err = v.blobIn(ctx, cat, code, dst, kind, id)
	return content, err
}

// blobIn reads one blob. If one copy is damaged or gone, it tries the others. moved means that a pack
// is gone that the catalog has.
func (v *Reader) blobIn(
	ctx context.Context, cat *catalog, code *coder, dst []byte, kind byte, id blobID,
) (content []byte, moved bool, err error) {
	found, err := cat.find(id)
	if err != nil {
		return nil, false, err
	}
	var failed error = damaged("a part of the item %q is not in the repository", v.item.Name)
	moved = len(found) == 0 // it may have moved while the catalog was read
	for _, at := range found {
		name := v.d.packName(cat.pack(at.pack))
		sealed := make([]byte, at.length)
		err := v.r.store.GetRange(ctx, name, int64(at.offset), sealed)
		moved = moved || notExist(err)
		if err == nil {
			if content, err = code.open(dst, kind, id, at.raw, sealed); err == nil {
				return content, false, nil
			}
		}
		if !isDamaged(err) && !notExist(err) {
			return nil, false, err
		}
		failed = damaged("a part of the item %q in %s is damaged: %v", v.item.Name, name, err)
	}
	return nil, moved, failed
}

// block returns a decoded block; nil for zeros. The caller must not change it.
func (v *Reader) block(ctx context.Context, n int64) ([]byte, error) {
	v.lock.Lock()
	content, has := v.blocks.get(n)
	v.lock.Unlock()
	if has {
		return content, nil
	}
	ids, err := v.segmentAt(ctx, n/segmentBlocks)
	if err != nil || ids == nil {
		return nil, err
	}
	if id := ids[n%segmentBlocks]; id != (blobID{}) {
		if content, err = v.blob(ctx, v.d.coder(), nil, blockBlob, id); err != nil {
			return nil, err
		}
		if len(content) != v.lengthOf(n) {
			return nil, damaged("a block of the item %q has a wrong length", v.item.Name)
		}
	}
	v.lock.Lock()
	v.blocks.put(n, content)
	v.lock.Unlock()
	return content, nil
}

func (v *Reader) lengthOf(n int64) int {
	size := int64(v.r.config.BlockSize)
	return int(min(size, v.item.Size-n*size))
}

// ReadAt is ReadAtContext without a bound on its time.
func (v *Reader) ReadAt(p []byte, offset int64) (int, error) {
	return v.ReadAtContext(context.Background(), p, offset)
}

// ReadAtContext reads what is at an offset, as io.ReaderAt does.
func (v *Reader) ReadAtContext(ctx context.Context, p []byte, offset int64) (done int, err error) {
	if offset < 0 {
		return 0, fault.InvalidField("offset", "must not be negative")
	}
	size := int64(v.r.config.BlockSize)
	for done < len(p) {
		at := offset + int64(done)
		if at >= v.item.Size {
			return done, io.EOF
		}
		content, err := v.block(ctx, at/size)
		if err != nil {
			return done, err
		}
		within := int(at % size)
		n := min(len(p)-done, v.lengthOf(at/size)-within)
		if content == nil {
			clear(p[done : done+n])
		} else {
			copy(p[done:done+n], content[within:])
		}
		done += n
	}
	return done, nil
}

// lru keeps the entries that were used last.
type lru[K comparable, V any] struct {
	limit   int
	order   *list.List
	entries map[K]*list.Element
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](limit int) lru[K, V] {
	return lru[K, V]{limit, list.New(), map[K]*list.Element{}}
}

func (l *lru[K, V]) get(key K) (value V, has bool) {
	e, has := l.entries[key]
	if !has {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(lruEntry[K, V]).value, true
}

func (l *lru[K, V]) put(key K, value V) {
	if e, has := l.entries[key]; has {
		l.order.Remove(e)
	}
	l.entries[key] = l.order.PushFront(lruEntry[K, V]{key, value})
	if l.order.Len() > l.limit {
		oldest := l.order.Back()
		delete(l.entries, l.order.Remove(oldest).(lruEntry[K, V]).key)
	}
}

var _ io.ReaderAt = (*Reader)(nil)

// errStop ends a goroutine whose work is not needed any more.
var errStop = errors.New("another part failed")
