package repository

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/durable"
)

// catalog is what a domain's packs hold: which blobs, and where.
type catalog struct {
	lock  sync.RWMutex
	packs []packInfo // a location's pack is a number of one of these
	// fresh are the blobs that writers may rely on. doomed are those in packs that will be removed:
	// they can be read, but nothing new may refer to them.
	fresh, doomed  *table
	indexes        map[string][]packID // the index objects and their packs
	indexed        map[packID]bool
	problems       []Problem
	damagedIndexes []string
	// unreadable is why it is not known which packs are doomed. Then only reading is safe.
	unreadable error
}

// packInfo is a pack that is in the store.
type packInfo struct {
	id     packID
	size   int64 // as listed, in bytes
	doomed bool
}

// Problem is something in the repository that is not as it must be.
type Problem struct {
	Object string // its name
	Reason string
}

// load reads a domain's catalog. Dooms are read before packs, see sweep.go.
func (r *Repository) load(ctx context.Context, d *domain) (_ *catalog, err error) {
	dooms, err := r.dooms(ctx, d)
	if err != nil && !isDamaged(err) {
		return nil, err
	}
	c := &catalog{
		unreadable: err,
		fresh:      newTable(r.options.Scratch), doomed: newTable(r.options.Scratch),
		indexes: map[string][]packID{}, indexed: map[packID]bool{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.unreadable != nil {
		c.problems = append(c.problems, Problem{doomsPrefix + d.place + "/", c.unreadable.Error()})
	}
	numbers := map[packID]uint32{}
	for info, err := range r.store.List(ctx, "packs/"+d.place+"/") {
		if err != nil {
			return nil, err
		}
		writer, number, ok := parseNumbered(strings.TrimPrefix(info.Name, "packs/"+d.place+"/"))
		if !ok {
			c.problems = append(c.problems, Problem{info.Name, "it does not have a name of a pack"})
			continue
		}
		id := packID{writer, number}
		numbers[id] = uint32(len(c.packs))
		c.packs = append(c.packs, packInfo{id, info.Size, dooms.packs[id]})
	}
	if err := r.loadIndexes(ctx, d, c, numbers); err != nil {
		return nil, err
	}
	for n := range c.packs {
		p := c.packs[n]
		if c.indexed[p.id] {
			continue
		}
		entries, err := r.readTrailer(ctx, d, p.id, p.size)
		switch {
		case notExist(err): // another prune has removed it since it was listed
		case isDamaged(err):
			c.problems = append(c.problems, Problem{d.packName(p.id), "it is damaged: " + err.Error()})
		case err != nil:
			return nil, err
		default:
			if err := c.add(uint32(n), entries); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// loadIndexes takes what the index objects say about packs that exist.
func (r *Repository) loadIndexes(ctx context.Context, d *domain, c *catalog, numbers map[packID]uint32) error {
	names, err := r.names(ctx, "index/"+d.place+"/")
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, short := range names {
		name := "index/" + d.place + "/" + short
		packs, err := r.readIndex(ctx, d, name)
		if notExist(err) {
			continue // a prune has merged it; the trailers say the same
		}
		if isDamaged(err) {
			c.problems = append(c.problems, Problem{name, "it is damaged: " + err.Error()})
			c.damagedIndexes = append(c.damagedIndexes, name)
			continue
		}
		if err != nil {
			return err
		}
		c.indexes[name] = nil
		for i := range packs {
			p := &packs[i]
			c.indexes[name] = append(c.indexes[name], p.id)
			number, exists := numbers[p.id]
			if !exists || c.indexed[p.id] {
				continue
			}
			if int64(p.size) != c.packs[number].size {
				c.problems = append(c.problems, Problem{d.packName(p.id), "it was shortened or lengthened"})
			}
			c.indexed[p.id] = true
			if err := c.add(number, p.entries); err != nil {
				return err
			}
		}
	}
	return nil
}

// readIndex reads an index object, or its copy in the cache.
func (r *Repository) readIndex(ctx context.Context, d *domain, name string) ([]indexedPack, error) {
	cached := ""
	if r.options.Cache != "" {
		cached = filepath.Join(r.options.Cache, r.config.ID+"-"+strings.ReplaceAll(name, "/", "-"))
		if sealed, err := os.ReadFile(cached); err == nil {
			if packs, err := d.openIndex(name, sealed); err == nil {
				return packs, nil
			} // otherwise the copy is damaged, and replaced
		}
	}
	sealed, err := r.store.Get(ctx, name, maxDecompressed)
	if err != nil {
		return nil, err
	}
	packs, err := d.openIndex(name, sealed)
	if err == nil && cached != "" {
		if err := durable.Replace(cached, sealed, 0o600); err != nil {
			r.options.Log.Warn("a copy of an index was not stored", "file", cached, "error", err)
		}
	}
	return packs, err
}

func (d *domain) openIndex(name string, sealed []byte) ([]indexedPack, error) {
	packed, err := d.open(nil, sealed, []byte(name))
	if err != nil {
		return nil, err
	}
	return decodeIndex(packed)
}

// add takes the blobs of a pack.
func (c *catalog) add(number uint32, entries []packEntry) error {
	t := c.fresh
	if c.packs[number].doomed {
		t = c.doomed
	}
	offset := uint32(len(packMagic))
	for i := range entries {
		e := &entries[i]
		if err := t.add(e.id, location{number, offset, e.length, e.raw}); err != nil {
			return err
		}
		offset += e.length
	}
	return nil
}

// addPack takes a pack that is being written, and returns its number.
func (c *catalog) addPack(id packID) uint32 {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.packs = append(c.packs, packInfo{id: id})
	return uint32(len(c.packs) - 1)
}

func (c *catalog) pack(number uint32) packID {
	c.lock.RLock()
	defer c.lock.RUnlock()
	return c.packs[number].id
}

// find returns all places of a blob, those that stay first.
func (c *catalog) find(id blobID) ([]location, error) {
	found, err := c.fresh.find(id)
	if err != nil {
		return nil, err
	}
	doomed, err := c.doomed.find(id)
	return append(found, doomed...), err
}

func (c *catalog) close() error { return errors.Join(c.fresh.close(), c.doomed.close()) }

// eachPack calls f with the number and the blobs of each pack, but for packs whose lists are damaged.
func (r *Repository) eachPack(
	ctx context.Context, d *domain, c *catalog, f func(number uint32, entries []packEntry) error,
) error {
	left := map[packID]uint32{}
	for n := range c.packs {
		left[c.packs[n].id] = uint32(n)
	}
	take := func(id packID, entries []packEntry) error {
		number, has := left[id]
		if !has {
			return nil
		}
		delete(left, id)
		return f(number, entries)
	}
	for _, name := range slices.Sorted(maps.Keys(c.indexes)) {
		packs, err := r.readIndex(ctx, d, name)
		if notExist(err) {
			continue
		}
		if err != nil {
			return named(name, err)
		}
		for i := range packs {
			if err := take(packs[i].id, packs[i].entries); err != nil {
				return err
			}
		}
	}
	for id, number := range maps.Clone(left) {
		entries, err := r.readTrailer(ctx, d, id, c.packs[number].size)
		if notExist(err) || isDamaged(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := take(id, entries); err != nil {
			return err
		}
	}
	return nil
}
