package repository

import (
	"context"
	"slices"
	"strings"
	"time"
)

// doom is an object that says which packs will be removed. It consists of two objects, written in
// this order: first the packs, then the writers whose leases were seen after that.
type doom struct {
	ID      ID        `json:"id"`
	At      time.Time `json:"at"`
	Packs   []string  `json:"packs"`
	writers *doomWriters
}

// doomWriters are the writers that may rely on a doomed pack, and the number that each one's lease
// had. nil means that the prune was killed before it wrote them.
type doomWriters struct {
	At     time.Time     `json:"at"`
	Leases map[ID]uint32 `json:"leases"`
}

type doomSet struct {
	all   []*doom
	packs map[packID]bool
	// orphans are objects with leases whose packs are gone.
	orphans []string
}

const (
	doomPacks   = "-packs"
	doomLeases  = "-leases"
	doomsPrefix = "doomed/"
)

func (d *domain) doomName(id ID, part string) string {
	return doomsPrefix + d.place + "/" + id.String() + part
}

// dooms reads the dooms of a domain. A damaged one is an error: packs that are believed to stay
// might vanish.
func (r *Repository) dooms(ctx context.Context, d *domain) (*doomSet, error) {
	names, err := r.names(ctx, doomsPrefix+d.place+"/")
	if err != nil {
		return nil, err
	}
	set := &doomSet{packs: map[packID]bool{}}
	for _, name := range names {
		short, isLeases := strings.CutSuffix(name, doomLeases)
		if isLeases && !slices.Contains(names, short+doomPacks) {
			set.orphans = append(set.orphans, doomsPrefix+d.place+"/"+name)
		}
	}
	for _, name := range names {
		short, isPacks := strings.CutSuffix(name, doomPacks)
		id, err := ParseID(short)
		if !isPacks || err != nil {
			continue
		}
		one := &doom{}
		err = getMeta(ctx, r, d.sealer, d.doomName(id, doomPacks), one)
		if notExist(err) {
			continue // its packs are gone
		}
		if err != nil {
			return &doomSet{}, named(d.doomName(id, doomPacks), err)
		}
		one.ID = id
		writers := &doomWriters{}
		switch err := getMeta(ctx, r, d.sealer, d.doomName(id, doomLeases), writers); {
		case notExist(err):
		case err != nil:
			return &doomSet{}, named(d.doomName(id, doomLeases), err)
		default:
			one.writers = writers
		}
		for _, p := range one.Packs {
			writer, number, ok := parseNumbered(p)
			if !ok {
				return &doomSet{}, damaged("%s is damaged", name)
			}
			set.packs[packID{writer, number}] = true
		}
		set.all = append(set.all, one)
	}
	return set, nil
}

// named says which object an error is about.
func named(name string, err error) error {
	if isDamaged(err) {
		return damaged("%s is damaged: %v", name, err)
	}
	return err
}
