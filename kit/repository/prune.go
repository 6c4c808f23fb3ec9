package repository

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// PruneOptions say how to prune. The zero value means the defaults.
type PruneOptions struct {
	// Grace is how long a doomed pack stays at least, and how long a lease may go without renewal
	// before its writer is given up; 0: an hour. It must be longer than the leases' expiry.
	Grace time.Duration
	// MaxDead is how many percent of a pack may be dead before what lives in it is copied
	// elsewhere; 0: 30. Packs in which nothing lives always go.
	MaxDead int
}

// PruneReport says what a prune has done. Sizes are in bytes.
type PruneReport struct {
	Live    int64 // what is needed
	Dead    int64 // what is not, in all packs that are not doomed
	Doomed  int   // packs that were doomed now
	Waiting int   // packs that were doomed before, and whose time has not come
	Removed int   // packs
	Freed   int64
	Copied  int64
	GivenUp int // writers whose leases had expired
	// Needs is Live by tenant's place (Repository.Place), of those that were pruned without an error.
	Needs map[string]int64
}

func (a *PruneReport) add(b PruneReport) {
	a.Live, a.Dead, a.Freed, a.Copied = a.Live+b.Live, a.Dead+b.Dead, a.Freed+b.Freed, a.Copied+b.Copied
	a.Doomed, a.Waiting = a.Doomed+b.Doomed, a.Waiting+b.Waiting
	a.Removed, a.GivenUp = a.Removed+b.Removed, a.GivenUp+b.GivenUp
}

// Prune frees what no backup needs. It takes two runs, with the grace period between them: the first
// dooms packs and the second removes them. It may run beside backups and other prunes. If part of a
// tenant's repository is damaged, nothing of that tenant is removed: the fault is of kind Conflict
// and says what is to be done, and the other tenants are pruned.
func (r *Repository) Prune(ctx context.Context, o PruneOptions) (PruneReport, error) {
	total := PruneReport{Needs: map[string]int64{}}
	if o.Grace == 0 {
		o.Grace = max(time.Hour, 2*r.options.Lease.Expiry)
	}
	if o.MaxDead == 0 {
		o.MaxDead = 30
	}
	if o.Grace <= r.options.Lease.Expiry {
		return total, fault.InvalidField("grace", "must be longer than %v, after which a writer gives up", r.options.Lease.Expiry)
	}
	places, err := r.places(ctx)
	if err != nil {
		return total, err
	}
	var failed []error
	for _, place := range places {
		p := &prune{r: r, d: r.domainAt(place), o: o, writer: newID()}
		err := p.run(ctx)
		if err == nil {
			total.Needs[place] = p.report.Live
		}
		failed = append(failed, err)
		total.add(p.report)
	}
	return total, errors.Join(failed...)
}

// prune is one prune of one domain.
type prune struct {
	r      *Repository
	d      *domain
	o      PruneOptions
	report PruneReport
	writer ID // of the packs that it makes
	code   *coder
	// The numbers of its next pack and index.
	nextPack, nextIndex uint32
	watching            bool // there is a doom that tells whether leases are renewed
}

func (p *prune) run(ctx context.Context) (err error) {
	p.code = p.d.coder()
	// Its lease keeps other prunes from dooming the packs that it makes before they are used, and
	// makes their dooms wait for what it copies.
	l, ctx, err := p.r.lease(ctx, p.d, p.writer)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && errors.Is(context.Cause(ctx), errLeaseLost) {
			err = errLeaseLost
		}
		err = errors.Join(err, l.release(context.WithoutCancel(ctx)))
	}()
	if err := p.sweep(ctx); err != nil {
		return err
	}
	if err := p.doom(ctx); err != nil {
		return err
	}
	return p.tidy(ctx)
}

// mark returns the ids of all blobs that backups need.
func (p *prune) mark(ctx context.Context, h *history, cat *catalog) (_ *table, err error) {
	// What a damaged manifest needs is not known.
	for _, id := range h.damaged {
		return nil, refuse([]Problem{{p.d.backupName(id), "it is damaged"}})
	}
	live := newTable(p.r.options.Scratch)
	defer func() {
		if err != nil {
			err = errors.Join(err, live.close())
		}
	}()
	need := func(id blobID) (known bool, err error) {
		if id == (blobID{}) {
			return true, nil
		}
		if known, err = live.has(id); known || err != nil {
			return known, err
		}
		return false, live.add(id, location{})
	}
	cats := newShelf(p.r, p.d, cat)
	defer cats.close(1)
	for _, b := range h.backups {
		for i := range b.Items {
			reader := newReader(p.r, p.d, cats, &b.Items[i])
			for s := range int64(len(b.Items[i].Segments) / len(blobID{})) {
				if known, err := need(b.Items[i].segment(s)); err != nil {
					return nil, err
				} else if known {
					continue // another backup has the same segment
				}
				ids, err := reader.segmentAt(ctx, s)
				if err != nil {
					if isDamaged(err) {
						err = refuse([]Problem{{p.d.backupName(b.ID), err.Error()}})
					}
					return nil, err
				}
				for _, id := range ids {
					if _, err := need(id); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return live, nil
}

// doom finds packs in which too much is dead, copies what lives in them, and dooms them.
func (p *prune) doom(ctx context.Context) error {
	// The leases come first: a writer that is not seen here has ended, and its manifest is seen.
	leases, err := p.r.leases(ctx, p.d)
	if err != nil {
		return err
	}
	cat, err := p.r.load(ctx, p.d)
	if err != nil {
		return err
	}
	defer cat.close()
	h, err := p.r.history(ctx, p.d)
	if err != nil {
		return err
	}
	live, err := p.mark(ctx, h, cat)
	if err != nil {
		return err
	}
	defer live.close()
	found := &doom{At: p.r.now(), ID: newID()}
	err = p.r.eachPack(ctx, p.d, cat, func(number uint32, entries []packEntry) error {
		info := cat.packs[number]
		if info.doomed || leases[info.id.writer] != nil {
			return nil
		}
		alive, dead, err := p.weigh(cat, live, number, entries)
		if err != nil {
			return err
		}
		p.report.Live += alive
		p.report.Dead += dead
		if alive == 0 || dead*100 > (alive+dead)*int64(p.o.MaxDead) {
			found.Packs = append(found.Packs, info.id.String())
		}
		return nil
	})
	if err != nil {
		return err
	}
	delete(leases, p.writer)
	if len(found.Packs) == 0 && (len(leases) == 0 || p.report.Waiting > 0 || p.watching) {
		return nil
	}
	// Without packs, it still tells the next prune which leases are not renewed.
	if err := p.copyLive(ctx, cat, live, found); err != nil {
		return err
	}
	if err := putMeta(ctx, p.r, p.d.sealer, p.d.doomName(found.ID, doomPacks), found); err != nil {
		return err
	}
	p.report.Doomed = len(found.Packs)
	return p.watch(ctx, found.ID)
}

// weigh returns how many bytes of a pack live, and how many are dead. Of several copies of a blob,
// the one in the pack with the first name lives.
func (p *prune) weigh(cat *catalog, live *table, number uint32, entries []packEntry) (alive, dead int64, err error) {
	for i := range entries {
		e := &entries[i]
		lives, err := live.has(e.id)
		if err != nil {
			return 0, 0, err
		}
		if lives {
			copies, err := cat.fresh.find(e.id)
			if err != nil {
				return 0, 0, err
			}
			for _, c := range copies {
				lives = lives && cat.pack(number).String() <= cat.pack(c.pack).String()
			}
		}
		if lives {
			alive += int64(e.length)
		} else {
			dead += int64(e.length)
		}
	}
	return alive, dead, nil
}

// copyLive copies what lives in packs that are about to be doomed and is nowhere else.
func (p *prune) copyLive(ctx context.Context, cat *catalog, live *table, found *doom) error {
	doomed := map[packID]bool{}
	for _, name := range found.Packs {
		writer, number, _ := parseNumbered(name)
		doomed[packID{writer, number}] = true
	}
	out := p.copier(cat)
	for _, info := range slices.Clone(cat.packs) { // copies are added to it meanwhile
		if !doomed[info.id] {
			continue
		}
		if err := p.rescue(ctx, out, info, live, doomed); err != nil {
			out.abandon()
			return err
		}
	}
	return p.finish(ctx, out)
}

// rescue copies the blobs of a pack that live and have no copy in a pack that stays. Sealed blobs are
// copied as they are, after they were opened once: damage does not spread.
func (p *prune) rescue(ctx context.Context, out *packWriter, from packInfo, live *table, doomed map[packID]bool) error {
	pack, err := p.r.store.Get(ctx, p.d.packName(from.id), maxPack)
	if notExist(err) {
		return nil // another prune was faster, and has made copies
	}
	if err != nil {
		return err
	}
	err = p.d.parsePack(from.id, pack, func(e *packEntry, sealed []byte) error {
		lives, err := live.has(e.id)
		if err != nil || !lives {
			return err
		}
		copies, err := out.cat.fresh.find(e.id)
		if err != nil {
			return err
		}
		for _, c := range copies {
			if !doomed[out.cat.pack(c.pack)] {
				return nil
			}
		}
		if _, err := p.code.open(nil, e.kind, e.id, e.raw, sealed); err != nil {
			return err
		}
		stored, err := out.store(ctx, *e, sealed)
		p.report.Copied += stored
		return err
	})
	if isDamaged(err) {
		return refuse([]Problem{{p.d.packName(from.id), err.Error()}})
	}
	return err
}

// copier returns a writer of packs for what is copied.
func (p *prune) copier(cat *catalog) *packWriter {
	return &packWriter{r: p.r, d: p.d, cat: cat, writer: p.writer, next: p.nextPack, indexes: p.nextIndex}
}

// finish makes what was copied durable.
func (p *prune) finish(ctx context.Context, out *packWriter) error {
	err := out.finish(ctx)
	out.abandon()
	p.nextPack, p.nextIndex = out.next, out.indexes
	return err
}
