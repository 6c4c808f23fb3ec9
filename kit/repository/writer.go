package repository

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
)

const (
	// uploads is how many packs are on their way to the store while the next is filled.
	uploads = 2
	// indexPacks is how many packs an index object covers at most.
	indexPacks = 64
)

// Progress is how far a backup is, in bytes.
type Progress struct {
	Done  int64 // of the virtual size
	Total int64 // 0: unknown
	Read  int64
	New   int64 // read and not known yet
	// Stored is what New takes in the repository.
	Stored int64
}

// Writer writes one backup. It is not safe for concurrent use. It must end with Commit or Abort.
type Writer struct {
	r        *Repository
	d        *domain
	backup   Backup
	ctx      context.Context
	lease    *lease
	cat      *catalog
	code     *coder
	packs    packWriter
	progress func(Progress)
	ended    bool
	// undecided means that the backup may become visible yet.
	undecided bool
}

// Begin begins a backup. The context bounds all of it. parent, unless nil, is the backup that Disk
// copies from. progress, unless nil, is called from time to time by the goroutine that calls the
// Writer.
func (r *Repository) Begin(ctx context.Context, info Info, parent *ID, progress func(Progress)) (_ *Writer, err error) {
	if info.Tenant == "" {
		return nil, fault.InvalidField("tenant", "must be given")
	}
	if len(info.Config) > 0 && !json.Valid(info.Config) {
		return nil, fault.InvalidField("config", "is not valid JSON")
	}
	w := &Writer{r: r, d: r.domainAt(r.place(info.Tenant)), progress: progress}
	w.code = w.d.coder()
	w.backup = Backup{Info: info, ID: newID(), Parent: parent, Started: r.now(), place: w.d.place}
	// The lease comes first. Prune waits for those who read the catalog or the parent after that.
	if w.lease, w.ctx, err = r.lease(ctx, w.d, w.backup.ID); err != nil {
		return nil, err
	}
	w.cat, err = r.load(w.ctx, w.d)
	if err == nil && w.cat.unreadable != nil {
		// Which packs will go is not known, so nothing can be relied upon.
		err = errors.Join(w.cat.unreadable, w.cat.close())
	}
	if err != nil {
		return nil, errors.Join(err, w.lease.release(context.WithoutCancel(ctx)))
	}
	w.packs = packWriter{r: r, d: w.d, cat: w.cat, writer: w.backup.ID}
	return w, nil
}

// ID returns the id that the backup will have.
func (w *Writer) ID() ID { return w.backup.ID }

// Commit makes the backup visible. What it returns survives power loss. If the outcome is not known
// after an error, the backup may be there.
func (w *Writer) Commit() (*Backup, error) {
	if w.ended {
		return nil, fault.New(fault.Conflict, "the backup has ended")
	}
	if err := w.commit(); err != nil {
		return nil, errors.Join(w.cause(err), w.Abort())
	}
	w.ended = true
	ctx := context.WithoutCancel(w.ctx)
	if err := errors.Join(w.lease.release(ctx), w.cat.close()); err != nil {
		// Prune gives the lease up in time.
		w.r.options.Log.Warn("the lease of a finished backup was not removed", "backup", w.backup.ID, "error", err)
	}
	return &w.backup, nil
}

func (w *Writer) commit() error {
	if err := w.packs.finish(w.ctx); err != nil {
		return err
	}
	h, err := w.r.history(w.ctx, w.d)
	if err != nil {
		return err
	}
	for id, b := range h.backups {
		w.backup.Seen = append(w.backup.Seen, id)
		w.backup.Sequence = max(w.backup.Sequence, b.Sequence)
	}
	w.backup.Sequence++
	slices.SortFunc(w.backup.Seen, func(a, b ID) int { return strings.Compare(a.String(), b.String()) })
	w.backup.Finished = w.r.now()
	if err := w.backup.check(w.r.config.BlockSize); err != nil {
		return fault.Wrap(fault.TooLarge, err, "the backup is too large for the repository")
	}
	if w.lease.lost() {
		return errLeaseLost
	}
	name := w.d.backupName(w.backup.ID)
	err = putMeta(w.ctx, w.r, w.d.sealer, name, &w.backup)
	if err == nil {
		return nil
	}
	// The name decides: what is there first stays. If that cannot be told, the lease stays too, and
	// Prune decides when it has expired.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), time.Minute)
	defer cancel()
	committed, failed := w.r.fence(ctx, w.d, w.backup.ID)
	switch {
	case failed != nil:
		w.undecided = true
		return errors.Join(err, failed)
	case committed:
		return nil
	case exists(err):
		return errLeaseLost
	}
	return err
}

// fence makes sure that a writer does not commit from now on, unless it has already: it takes the
// name of the writer's manifest, of which there can be only one.
func (r *Repository) fence(ctx context.Context, d *domain, writer ID) (committed bool, err error) {
	err = putMeta(ctx, r, d.sealer, d.backupName(writer), &Backup{ID: writer, Void: true, Finished: r.now()})
	if err == nil {
		return false, nil
	}
	if !exists(err) {
		return false, err
	}
	there, err := r.manifest(ctx, d, writer)
	if err != nil {
		return false, err
	}
	return !there.Void, nil
}

// Sent returns how many bytes of packs were sent to the store so far. Those of a backup that is not committed stay
// until they are pruned.
func (w *Writer) Sent() int64 { return w.packs.sent }

// Abort ends a backup without a trace but garbage, which Prune removes. After Commit it does nothing.
func (w *Writer) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), time.Minute)
	defer cancel()
	w.packs.abandon()
	if w.undecided {
		w.lease.pause()
		return w.cat.close()
	}
	return errors.Join(w.lease.release(ctx), w.cat.close())
}

// cause prefers the reason why the context ended.
func (w *Writer) cause(err error) error {
	if errors.Is(context.Cause(w.ctx), errLeaseLost) {
		return errLeaseLost
	}
	return err
}

// packWriter packs sealed blobs and puts the packs into the store.
type packWriter struct {
	r       *Repository
	d       *domain
	cat     *catalog
	writer  ID
	next    uint32 // number of the next pack
	indexes uint32
	current *packBuilder
	number  uint32 // of the current pack in the catalog
	running []upload
	done    []indexedPack
	sent    int64 // bytes of packs, also of those that are running
}

type upload struct {
	pack   indexedPack
	result <-chan error
}

// add stores a blob, unless it is there already. stored is how many bytes it takes; 0 if it was
// there.
func (p *packWriter) add(ctx context.Context, e packEntry, sealed []byte) (stored int64, err error) {
	if has, err := p.cat.fresh.has(e.id); has || err != nil {
		return 0, err
	}
	return p.store(ctx, e, sealed)
}

// store stores a blob, even if there is a copy.
func (p *packWriter) store(ctx context.Context, e packEntry, sealed []byte) (stored int64, err error) {
	if p.current == nil {
		p.current = newPack(packID{p.writer, p.next})
		p.next++
		p.number = p.cat.addPack(p.current.id)
	}
	e.length = uint32(len(sealed))
	offset := p.current.add(e, sealed)
	if err := p.cat.fresh.add(e.id, location{p.number, offset, e.length, e.raw}); err != nil {
		return 0, err
	}
	if p.current.full() {
		err = p.flush(ctx)
	}
	return int64(len(sealed)), err
}

// flush sends the current pack on its way, and waits if too many are.
func (p *packWriter) flush(ctx context.Context) error {
	if p.current == nil {
		return nil
	}
	if len(p.running) == uploads {
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
	pack := p.current
	p.current = nil
	content := pack.finish(p.d)
	p.sent += int64(len(content))
	p.running = append(p.running, upload{
		indexedPack{pack.id, uint32(len(content)), pack.entries},
		routine.Start(p.r.options.Log, "backup upload", func() error {
			return p.r.store.Put(ctx, p.d.packName(pack.id), content)
		}),
	})
	return nil
}

// wait waits for the oldest upload.
func (p *packWriter) wait(ctx context.Context) error {
	first := p.running[0]
	p.running = p.running[1:]
	if err := <-first.result; err != nil {
		return err
	}
	if p.done = append(p.done, first.pack); len(p.done) < indexPacks {
		return nil
	}
	return p.index(ctx)
}

// index writes an index object for the packs that are in the store.
func (p *packWriter) index(ctx context.Context) error {
	if len(p.done) == 0 {
		return nil
	}
	name := "index/" + p.d.place + "/" + packID{p.writer, p.indexes}.String()
	p.indexes++
	err := p.r.store.Put(ctx, name, p.d.seal(nil, encodeIndex(p.done), []byte(name)))
	p.done = nil
	return err
}

// finish makes all packs and their index durable.
func (p *packWriter) finish(ctx context.Context) error {
	if err := p.flush(ctx); err != nil {
		return err
	}
	for len(p.running) > 0 {
		if err := p.wait(ctx); err != nil {
			return err
		}
	}
	return p.index(ctx)
}

// abandon waits for uploads, so that none outlives the lease.
func (p *packWriter) abandon() {
	for _, u := range p.running {
		<-u.result //nolint:errcheck // the backup fails anyway
	}
	p.running = nil
}

// newest returns the largest number of each lease.
func newest(leases map[ID][]uint32) map[ID]uint32 {
	all := map[ID]uint32{}
	for writer := range maps.Keys(leases) {
		all[writer] = slices.Max(leases[writer])
	}
	return all
}
