package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// BasePath returns the path of a disk that linked clones share.
func (h *Host) BasePath(id string) string {
	return filepath.Join(h.data, "bases", filepath.Base(id)+".qcow2")
}

// SweepBases removes shared disks that no VM and no other base uses any more.
func (h *Host) SweepBases(ctx context.Context) error {
	for {
		ids, err := h.store.UnusedBases(ctx)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := os.Remove(h.BasePath(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			if err := h.store.ForgetBase(ctx, id); err != nil {
				return err
			}
		}
	}
}
