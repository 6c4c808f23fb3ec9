package record

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// ShareDisk stores that a VM's disk becomes a base that the VM and its linked clones use. The VM's
// bitmaps no longer match its new disk and are forgotten.
func (s *Store) ShareDisk(ctx context.Context, vmID, base string) error {
	const message = "the disk is shared with linked clones"
	_, err := s.changeWith(ctx, vmID, EventDisk, "", message, func(tx *db.Tx, r *VM) error {
		if _, err := tx.Exec(ctx, forgetBitmaps, vmID); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO bases (id, parent, content) VALUES (?, ?, ?)", base, r.DiskBase, r.Base)
		r.DiskBase = base
		return err
	})
	return err
}

// Base is a disk that linked clones share, or that came with a VM from another host.
type Base struct {
	ID      string `db:"id"`
	Parent  string `db:"parent"`  // the base below it; empty: none
	Content string `db:"content"` // the content of the catalog below the lowest base; empty: none
}

// Bases returns the bases that a VM's disk stands on, topmost first.
func (s *Store) Bases(ctx context.Context, r *VM) (all []Base, err error) {
	for id := r.DiskBase; id != ""; id = all[len(all)-1].Parent {
		var b Base
		if err := s.db.Get(ctx, &b, "SELECT * FROM bases WHERE id = ?", id); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// UnusedBases returns the ids of bases that neither a VM, another base nor a template uses.
func (s *Store) UnusedBases(ctx context.Context) (ids []string, err error) {
	return ids, s.db.Select(
		ctx,
		&ids,
		`SELECT id FROM bases b WHERE NOT EXISTS (SELECT 1 FROM vms WHERE disk_base = b.id)
		AND NOT EXISTS (SELECT 1 FROM bases c WHERE c.parent = b.id)
		AND NOT EXISTS (SELECT 1 FROM templates WHERE id = b.id)`,
	)
}

// ForgetBase removes the row of a base whose file is gone.
func (s *Store) ForgetBase(ctx context.Context, id string) error {
	return s.exec(ctx, "DELETE FROM bases WHERE id = ?", id)
}

// HasBase reports whether there is a row of a base.
func (s *Store) HasBase(ctx context.Context, id string) (bool, error) {
	var n int
	err := s.db.Get(ctx, &n, "SELECT COUNT(*) FROM bases WHERE id = ?", id)
	return n > 0, err
}
