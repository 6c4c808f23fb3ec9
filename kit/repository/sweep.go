package repository

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Why the sweep never removes what a backup needs.
//
// A writer relies only on blobs that it stores itself, or that it saw in packs that were not doomed
// when it read the dooms, after it took its lease. So who relies on pack P has a lease that was there
// before P's doom. The doom's leases are listed after its packs are written, so they include all of
// these who have not ended. The sweep waits until each has ended: its lease is gone, which comes after
// its manifest, or it is given up, after which its manifest cannot come. Manifests that are read after
// that name all blobs that anyone will ever need of P.
//
// Of these, each must have a copy in a pack that is not doomed; the sweep makes one where there is
// none. Copies cannot all go: of all doomed packs with a blob, take the one whose doom was written
// last. Who removes it has read dooms and then packs after that, and saw a copy in a pack that was
// not doomed, and dooms are never taken back. So that copy is not among those.
//
// Dooms are read before packs: a pack that is seen, and whose doom is not, is not gone already.

// sweep removes the packs of dooms that are due.
func (p *prune) sweep(ctx context.Context) error {
	dooms, err := p.r.dooms(ctx, p.d)
	if err != nil {
		return err
	}
	for _, one := range dooms.all {
		p.watching = true
		if one.writers == nil {
			// The prune that wrote it was killed, or is about to write this itself.
			if err := p.watch(ctx, one.ID); err != nil {
				return err
			}
			p.report.Waiting += len(one.Packs)
			continue
		}
		due := p.r.now().Sub(one.writers.At) >= p.o.Grace
		if due {
			if due, err = p.settled(ctx, one.ID, one.writers); err != nil {
				return err
			}
		}
		if !due {
			p.report.Waiting += len(one.Packs)
			continue
		}
		if err := p.remove(ctx, one); err != nil {
			return err
		}
		p.watching = false
	}
	return nil
}

// watch writes down which writers may rely on doomed packs.
func (p *prune) watch(ctx context.Context, id ID) error {
	leases, err := p.r.leases(ctx, p.d)
	if err != nil {
		return err
	}
	err = putMeta(ctx, p.r, p.d.sealer, p.d.doomName(id, doomLeases), doomWriters{p.r.now(), newest(leases)})
	if exists(err) {
		return nil
	}
	return err
}

// settled reports whether all writers that a doom waits for have ended. A lease that was not renewed
// since is given up.
func (p *prune) settled(ctx context.Context, id ID, w *doomWriters) (bool, error) {
	leases, err := p.r.leases(ctx, p.d)
	if err != nil {
		return false, err
	}
	now := newest(leases)
	for writer, then := range w.Leases {
		number, alive := now[writer]
		if !alive {
			continue
		}
		if number != then {
			// It lives. If it is killed later, that shows against the number that it has now.
			if err := p.r.store.Delete(ctx, p.d.doomName(id, doomLeases)); err != nil {
				return false, err
			}
			return false, p.watch(ctx, id)
		}
		if _, err := p.r.fence(ctx, p.d, writer); err != nil {
			return false, named(p.d.backupName(writer), err)
		}
		p.report.GivenUp++
		for _, n := range leases[writer] {
			if err := p.r.store.Delete(ctx, leaseName(p.d, writer, n)); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// remove removes the packs of a doom whose writers have ended, and then the doom.
func (p *prune) remove(ctx context.Context, one *doom) error {
	h, err := p.r.history(ctx, p.d)
	if err != nil {
		return err
	}
	cat, err := p.r.load(ctx, p.d)
	if err != nil {
		return err
	}
	defer cat.close()
	live, err := p.mark(ctx, h, cat)
	if err != nil {
		return err
	}
	defer live.close()
	out := p.copier(cat)
	var gone []packID
	for _, name := range one.Packs {
		writer, number, _ := parseNumbered(name)
		id := packID{writer, number}
		at := slices.IndexFunc(cat.packs, func(i packInfo) bool { return i.id == id })
		if at < 0 {
			continue // a sweep was killed after it had removed this one
		}
		if err := p.rescue(ctx, out, cat.packs[at], live, nil); err != nil {
			out.abandon()
			return err
		}
		gone = append(gone, id)
		p.report.Freed += cat.packs[at].size
	}
	if err := p.finish(ctx, out); err != nil {
		return err
	}
	for _, id := range gone {
		if err := p.r.store.Delete(ctx, p.d.packName(id)); err != nil {
			return err
		}
		p.report.Removed++
	}
	// If this is killed in between, the next prune waits once more.
	if err := p.r.store.Delete(ctx, p.d.doomName(one.ID, doomLeases)); err != nil {
		return err
	}
	return p.r.store.Delete(ctx, p.d.doomName(one.ID, doomPacks))
}

// tidy removes what nobody needs any more: index objects of packs that are gone, manifests of
// deleted backups, void manifests and removals that are old.
func (p *prune) tidy(ctx context.Context) error {
	h, err := p.r.history(ctx, p.d)
	if err != nil {
		return err
	}
	dooms, err := p.r.dooms(ctx, p.d)
	if err != nil {
		return err
	}
	for _, name := range dooms.orphans {
		if err := p.r.store.Delete(ctx, name); err != nil {
			return err
		}
	}
	old := p.r.now().Add(-keepRemovals)
	seen := map[ID]bool{}
	for _, b := range h.backups {
		for _, id := range b.Seen {
			seen[id] = true
		}
	}
	for id := range h.removed {
		if h.present[id] {
			if err := p.r.store.Delete(ctx, p.d.backupName(id)); err != nil {
				return err
			}
		}
		rem := removal{}
		if err := getMeta(ctx, p.r, p.d.sealer, p.d.removedName(id), &rem); err != nil {
			if notExist(err) {
				continue
			}
			return named(p.d.removedName(id), err)
		}
		protections, err := p.r.names(ctx, p.d.protections(id))
		if err != nil {
			return err
		}
		for _, name := range protections {
			if err := p.r.store.Delete(ctx, p.d.protections(id)+name); err != nil {
				return err
			}
		}
		if !seen[id] && rem.At.Before(old) {
			if err := p.r.store.Delete(ctx, p.d.removedName(id)); err != nil {
				return err
			}
		}
	}
	for id, b := range h.voids {
		if b.Finished.Before(old) {
			if err := p.r.store.Delete(ctx, p.d.backupName(id)); err != nil {
				return err
			}
		}
	}
	return p.tidyIndexes(ctx)
}

// keepRemovals is how long it is remembered that a backup was deleted or a writer given up. A writer
// that is stopped for longer, and then commits, would make a backup that lacks blocks.
const keepRemovals = 90 * 24 * time.Hour

// tidyIndexes removes index objects whose packs are all gone, and merges small ones.
func (p *prune) tidyIndexes(ctx context.Context) error {
	cat, err := p.r.load(ctx, p.d)
	if err != nil {
		return err
	}
	defer cat.close()
	// The packs say the same.
	for _, name := range cat.damagedIndexes {
		if err := p.r.store.Delete(ctx, name); err != nil {
			return err
		}
	}
	there := map[packID]bool{}
	for _, info := range cat.packs {
		there[info.id] = true
	}
	var small []string
	for _, name := range slices.Sorted(maps.Keys(cat.indexes)) {
		kept := 0
		for _, id := range cat.indexes[name] {
			if there[id] {
				kept++
			}
		}
		if kept == 0 {
			if err := p.r.store.Delete(ctx, name); err != nil {
				return err
			}
		} else if kept < indexPacks/2 {
			small = append(small, name)
		}
	}
	if len(small) < mergeIndexes {
		return nil
	}
	out := p.copier(cat)
	var merged []string
	for _, name := range small {
		packs, err := p.r.readIndex(ctx, p.d, name)
		if err != nil && !notExist(err) {
			return err
		}
		for _, one := range packs {
			if there[one.id] {
				out.done = append(out.done, one)
			}
		}
		merged = append(merged, name)
		if len(out.done) >= indexPacks {
			if err := p.replaceIndexes(ctx, out, merged); err != nil {
				return err
			}
			merged = nil
		}
	}
	return p.replaceIndexes(ctx, out, merged)
}

// mergeIndexes is from how many small index objects on they are merged.
const mergeIndexes = 16

func (p *prune) replaceIndexes(ctx context.Context, out *packWriter, merged []string) error {
	if err := out.index(ctx); err != nil {
		return err
	}
	p.nextIndex = out.indexes // of those that were merged, none is needed any more
	for _, name := range merged {
		if err := p.r.store.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// refuse says that a prune must not go on beside damage.
func refuse(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return fault.New(fault.Conflict, "%s: %s; nothing is removed before that is repaired, or the backup is deleted",
		problems[0].Object, problems[0].Reason).WithCode("repository_damaged")
}
