package record

import (
	"context"
	"errors"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// NewSealer returns the sealer for the secrets of guest agents, with the daemon's keys.
func NewSealer(key []byte, accepted ...[]byte) (*auth.Sealer, error) {
	return auth.NewSealer(key, "hypervisor guest secrets", accepted...)
}

// RenewSeals seals the secrets of guest agents with the current secret key where they are not: those
// of VMs, and those in the memory of snapshots and templates. If the key was rotated, it lets the audit log
// continue with the new one, too.
func RenewSeals(
	ctx context.Context, tx *db.Tx, sealer *auth.Sealer, log *audit.Log, rotated bool,
) (unreadable int, err error) {
	resealed := 0
	for table, id := range map[string]string{"vms": "id", "snapshots": "vm_id", "templates": "id"} {
		n, bad, err := keyring.Reseal(ctx, tx, sealer, table, id)
		if err != nil {
			return 0, err
		}
		resealed, unreadable = resealed+n, unreadable+bad
	}
	if !rotated {
		return unreadable, nil
	}
	if err := log.Rotate(ctx, tx); err != nil {
		return unreadable, err
	}
	e := caller.Daemon.Entry(audit.Entry{Action: "secret-key.rotate", Message: "the secret key was rotated"})
	return unreadable, log.Append(ctx, tx, e, map[string]int{"resealed": resealed, "unreadable": unreadable})
}

// KeyFits checks a key against a database that has no key fingerprint yet, by opening the secret of
// a VM's agent. used reports whether there is any secret.
func KeyFits(ctx context.Context, q db.Querier, key []byte) (used, fits bool, err error) {
	var vm struct {
		ID     string `db:"id"`
		Secret string `db:"secret"`
	}
	err = q.Get(ctx, &vm, "SELECT id, secret FROM vms WHERE secret <> '' ORDER BY id LIMIT 1")
	if errors.Is(err, db.ErrNoRows) {
		return false, true, nil
	}
	if err != nil || key == nil {
		return true, false, err
	}
	sealer, err := NewSealer(key)
	if err != nil {
		return true, false, err
	}
	_, err = sealer.Open(vm.Secret, vm.ID)
	return true, err == nil, nil
}

// Seal seals the secret of a VM's agent for its row.
func (s *Store) Seal(id, secret string) string { return s.sealer.Seal([]byte(secret), id) }

// Secrets returns the secrets that a VM's agent may have: one, or during a rotation the new one and
// the old one.
func (s *Store) Secrets(ctx context.Context, id string) ([]string, error) {
	return s.secretsIn(ctx, s.db, id)
}

func (s *Store) secretsIn(ctx context.Context, q db.Querier, id string) ([]string, error) {
	var sealed string
	if err := q.Get(ctx, &sealed, "SELECT secret FROM vms WHERE id = ?", id); err != nil {
		return nil, db.NotFound(err, "there is no such VM")
	}
	plain, err := s.sealer.Open(sealed, id)
	return strings.Split(string(plain), "\n"), err
}

// SetSecrets stores the secrets that a VM's agent may have, the likeliest first.
func (s *Store) SetSecrets(ctx context.Context, id string, secrets ...string) error {
	return s.exec(ctx, "UPDATE vms SET secret = ? WHERE id = ?", s.Seal(id, strings.Join(secrets, "\n")), id)
}

// ExpectSecretOf adds the secret in a snapshot's memory to the secrets that are tried, before the
// VM's current one.
func (s *Store) ExpectSecretOf(ctx context.Context, snap *Snapshot) error {
	old, err := s.sealer.Open(snap.Secret, snap.VM)
	if err != nil || len(old) == 0 {
		return err
	}
	return s.db.Update(ctx, func(tx *db.Tx) error {
		now, err := s.secretsIn(ctx, tx, snap.VM)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE vms SET secret = ? WHERE id = ?",
			s.Seal(snap.VM, string(old)+"\n"+now[0]), snap.VM)
		return err
	})
}
