package repository

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"strings"
)

// VerifyOptions say how much to verify.
type VerifyOptions struct {
	// Full reads and opens everything. Without it, packs are only held against their indexes and
	// sizes.
	Full bool
	// Known are backups that must be there, by their tenants. A store that was put back to an earlier
	// state is found out only by that.
	Known map[string][]ID
	// Progress, unless nil, is called with the bytes of packs that were read.
	Progress func(done, total int64)
}

// VerifyReport says what a Verify has found. The repository is whole if there are no problems.
type VerifyReport struct {
	Backups  int
	Packs    int
	Bytes    int64 // of all packs
	Problems []Problem
	// Damaged are the backups that cannot be restored as they were, and why. All others can.
	Damaged map[ID]string
}

// Verify checks the repository. What it finds is in the report; the error is only about the store.
func (r *Repository) Verify(ctx context.Context, o VerifyOptions) (*VerifyReport, error) {
	v := &verifier{r: r, o: o, report: &VerifyReport{Damaged: map[ID]string{}}}
	if err := v.keys(ctx); err != nil {
		return nil, err
	}
	places, err := r.places(ctx)
	if err != nil {
		return nil, err
	}
	for tenant := range o.Known {
		if place := r.place(tenant); !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	if err := v.measure(ctx, places); err != nil {
		return nil, err
	}
	for _, place := range places {
		if err := v.domain(ctx, r.domainAt(place)); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(v.report.Problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Object, b.Object), strings.Compare(a.Reason, b.Reason))
	})
	v.report.Problems = slices.Compact(v.report.Problems)
	return v.report, nil
}

type verifier struct {
	r      *Repository
	o      VerifyOptions
	report *VerifyReport
	done   int64
}

func (v *verifier) problem(object, reason string) {
	v.report.Problems = append(v.report.Problems, Problem{object, reason})
}

// keys checks what belongs to no tenant.
func (v *verifier) keys(ctx context.Context) error {
	content, err := v.r.store.Get(ctx, configName, maxConfig)
	if err != nil && !isDamaged(err) && !notExist(err) {
		return err
	}
	if err == nil {
		var text, mac []byte
		if _, text, mac, err = parseConfig(content); err == nil && !hmac.Equal(mac, v.r.configMAC(text)) {
			err = damaged("its keyed hash is wrong")
		}
	}
	if err != nil {
		v.problem(configName, "it is damaged: "+err.Error())
	}
	for info, err := range v.r.store.List(ctx, keysPrefix) {
		if err != nil {
			return err
		}
		content, err := v.r.store.Get(ctx, info.Name, maxKey)
		if err != nil && !isDamaged(err) && !notExist(err) {
			return err
		}
		whole := len(content) - sha256.Size
		if err != nil || whole < 0 || !hmac.Equal(content[whole:], keyMAC(v.r.master, info.Name, content[:whole])) {
			v.problem(info.Name, "it is damaged, or holds the key of another repository")
		}
	}
	return nil
}

// measure finds objects that do not belong here, and how much there is to read.
func (v *verifier) measure(ctx context.Context, places []string) error {
	kinds := []string{"packs", "index", "backups", "removed", "protect", "leases", "doomed"}
	for info, err := range v.r.store.List(ctx, "") {
		if err != nil {
			return err
		}
		parts := strings.Split(info.Name, "/")
		switch {
		case info.Name == configName, parts[0] == "keys" && len(parts) == 2, parts[0] == "probe":
		case len(parts) < 3 || !slices.Contains(kinds, parts[0]) || !slices.Contains(places, parts[1]):
			v.problem(info.Name, "it does not belong into a repository")
		case parts[0] == "packs":
			v.report.Packs++
			v.report.Bytes += info.Size
		}
	}
	return nil
}

func (v *verifier) domain(ctx context.Context, d *domain) error {
	h, err := v.r.history(ctx, d)
	if err != nil {
		return err
	}
	cat, err := v.r.load(ctx, d)
	if err != nil {
		return err
	}
	defer cat.close()
	v.report.Backups += len(h.backups)
	v.report.Problems = slices.Concat(v.report.Problems, h.problems, cat.problems)
	for _, id := range h.damaged {
		v.report.Damaged[id] = "its manifest is damaged"
	}
	v.missing(d, h)
	if err := v.small(ctx, d); err != nil {
		return err
	}
	if err := v.indexes(ctx, d); err != nil {
		return err
	}
	bad := map[blobCopy]bool{}
	if v.o.Full {
		if err := v.packs(ctx, d, cat, bad); err != nil {
			return err
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(h.backups), func(a, b ID) int { return bytes.Compare(a[:], b[:]) }) {
		if err := v.backup(ctx, d, cat, h.backups[id], bad); err != nil {
			return err
		}
	}
	return nil
}

// missing finds backups that were removed or put back behind the repository's back.
func (v *verifier) missing(d *domain, h *history) {
	lost := h.missing()
	for tenant, ids := range v.o.Known {
		if v.r.place(tenant) != d.place {
			continue
		}
		for _, id := range ids {
			if h.backups[id] == nil && !slices.Contains(lost, id) && !slices.Contains(h.damaged, id) {
				lost = append(lost, id)
			}
		}
	}
	for _, id := range lost {
		v.problem(d.backupName(id), "it is missing and was not deleted")
		v.report.Damaged[id] = "its manifest is missing"
	}
}

// small opens the objects that no other check opens.
func (v *verifier) small(ctx context.Context, d *domain) error {
	for prefix, value := range map[string]func() any{
		"leases/": func() any { return &leaseContent{} }, doomsPrefix: func() any { return &doom{} },
		protectPrefix: func() any { return &protection{} }, "backups/": func() any { return &Backup{} },
	} {
		names, err := v.r.names(ctx, prefix+d.place+"/")
		if err != nil {
			return err
		}
		for _, name := range names {
			name = prefix + d.place + "/" + name
			if err := getMeta(ctx, v.r, d.sealer, name, value()); isDamaged(err) {
				v.problem(name, "it is damaged: "+err.Error())
			} else if err != nil && !notExist(err) {
				return err
			}
		}
	}
	return nil
}

// indexes opens all indexes as they are in the store: those that a catalog has may be copies in the cache.
func (v *verifier) indexes(ctx context.Context, d *domain) error {
	prefix := "index/" + d.place + "/"
	names, err := v.r.names(ctx, prefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		sealed, err := v.r.store.Get(ctx, prefix+name, maxDecompressed)
		if err == nil {
			_, err = d.openIndex(prefix+name, sealed)
		}
		if isDamaged(err) {
			v.problem(prefix+name, "it is damaged: "+err.Error())
		} else if err != nil && !notExist(err) {
			return err
		}
	}
	return nil
}

// blobCopy is a blob in one pack.
type blobCopy struct {
	pack uint32
	id   blobID
}

// packs reads all packs and opens every blob in them. It enters copies that are damaged into bad.
func (v *verifier) packs(ctx context.Context, d *domain, cat *catalog, bad map[blobCopy]bool) error {
	code := d.coder()
	return v.eachListed(ctx, d, cat, func(number uint32, listed []packEntry) error {
		id := cat.packs[number].id
		whole, err := v.r.store.Get(ctx, d.packName(id), maxPack)
		if notExist(err) {
			return nil // a prune has just removed it
		}
		if err != nil && !isDamaged(err) {
			return err
		}
		if err == nil {
			at := 0
			err = d.parsePack(id, whole, func(e *packEntry, sealed []byte) error {
				if listed != nil && (at >= len(listed) || listed[at] != *e) {
					return damaged("it does not hold what its index says")
				}
				at++
				return nil
			})
		}
		if err != nil {
			v.problem(d.packName(id), "it is damaged: "+err.Error())
		}
		// What the index says is where blobs can be found, whatever else is wrong.
		offset := len(packMagic)
		for i := range listed {
			e := &listed[i]
			end, failed := offset+int(e.length), error(damaged("the pack is too short"))
			if end <= len(whole) {
				_, failed = code.open(nil, e.kind, e.id, e.raw, whole[offset:end])
			}
			if failed != nil {
				bad[blobCopy{number, e.id}] = true
				v.problem(d.packName(id), "it is damaged: a blob does not open")
			}
			offset = end
		}
		v.done += int64(len(whole))
		if v.o.Progress != nil {
			v.o.Progress(v.done, v.report.Bytes)
		}
		return ctx.Err()
	})
}

// eachListed is eachPack, and calls f with nil for packs whose lists are damaged too.
func (v *verifier) eachListed(
	ctx context.Context, d *domain, cat *catalog, f func(number uint32, listed []packEntry) error,
) error {
	seen := map[uint32]bool{}
	err := v.r.eachPack(ctx, d, cat, func(number uint32, entries []packEntry) error {
		seen[number] = true
		return f(number, entries)
	})
	for number := range cat.packs {
		if err == nil && !seen[uint32(number)] {
			err = f(uint32(number), nil)
		}
	}
	return err
}

// backup checks that every part of a backup is there.
func (v *verifier) backup(ctx context.Context, d *domain, cat *catalog, b *Backup, bad map[blobCopy]bool) error {
	cats := newShelf(v.r, d, cat)
	defer cats.close(1)
	for i := range b.Items {
		it := &b.Items[i]
		reader := newReader(v.r, d, cats, it)
		for s := range int64(len(it.Segments) / len(blobID{})) {
			if err := ctx.Err(); err != nil {
				return err
			}
			ids, err := reader.segmentAt(ctx, s)
			if isDamaged(err) {
				v.damage(d, b, "a list of blocks of its item "+it.Name+" is damaged or missing")
				continue
			}
			if err != nil {
				return err
			}
			for n := range ids {
				if ids[n] == (blobID{}) {
					continue
				}
				whole, err := v.whole(cats.newest(), cat, ids[n], uint32(reader.lengthOf(s*segmentBlocks+int64(n))), bad)
				if err != nil {
					return err
				}
				if !whole {
					v.damage(d, b, "a block of its item "+it.Name+" is damaged or missing")
				}
			}
		}
	}
	return nil
}

func (v *verifier) damage(d *domain, b *Backup, reason string) {
	if v.report.Damaged[b.ID] == "" {
		v.report.Damaged[b.ID] = reason
		v.problem(d.backupName(b.ID), reason)
	}
}

// whole reports whether there is a good copy of a blob. bad are of the catalog known.
func (v *verifier) whole(cat, known *catalog, id blobID, raw uint32, bad map[blobCopy]bool) (bool, error) {
	found, err := cat.find(id)
	if err != nil {
		return false, err
	}
	for _, at := range found {
		fits := at.raw == raw
		if cat == known {
			fits = fits && !bad[blobCopy{at.pack, id}] &&
				int64(at.offset)+int64(at.length) <= cat.packs[at.pack].size
		}
		if fits {
			return true, nil
		}
	}
	return false, nil
}

// Err returns the problems as an error, or nil if there are none.
func (r *VerifyReport) Err() error {
	var all []error
	for _, p := range r.Problems {
		all = append(all, damaged("%s: %s", p.Object, p.Reason))
	}
	return errors.Join(all...)
}
