package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/caller"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/state"
)

// States of mirrors.
const (
	MirrorEnabling  = "enabling"
	MirrorEnabled   = "enabled"
	MirrorDisabling = "disabling"
	MirrorFailed    = "error"
)

// Roles of mirrors.
const (
	Primary     = "primary"
	Secondary   = "secondary"
	UnknownRole = "unknown"
)

// DefaultRPO is how old copies may be unless somebody says otherwise, of mirrors that send snapshots: without it, the
// gateway would not send any.
const DefaultRPO = 15 * time.Minute

// Rehearsal is how the last reading of a copy ended.
type Rehearsal struct {
	OK     bool      `json:"ok"`
	Detail string    `json:"detail"`
	At     time.Time `json:"at"` // zero: there was none
	JobID  string    `json:"job_id"`
}

// Mirror is a volume that is mirrored, at one site.
type Mirror struct {
	ID        string                       `db:"id"`
	VolumeID  string                       `db:"volume_id"`
	Tenant    string                       `db:"tenant"`
	ClusterID string                       `db:"cluster_id"`
	PeerID    string                       `db:"peer_id"` // empty: not known
	Mode      driver.MirrorMode            `db:"mode"`
	State     string                       `db:"state"`
	Role      string                       `db:"role"`
	GlobalID  string                       `db:"global_id"` // empty: mirroring was not enabled yet
	RPO       int64                        `db:"rpo_secs"`
	Health    driver.Health                `db:"health"`
	Sites     db.JSON[[]driver.MirrorSite] `db:"sites"`
	SyncedAt  db.Time                      `db:"synced_at"`
	SentAt    db.Time                      `db:"sent_at"`
	SeenAt    db.Time                      `db:"seen_at"`
	Rehearsal db.JSON[Rehearsal]           `db:"rehearsal"`
	LastError string                       `db:"last_error"`
	CreatedAt db.Time                      `db:"created_at"`
}

// MirrorArgs are the arguments of a job about a mirror.
type MirrorArgs struct {
	ID       string
	Force    bool `json:",omitempty"`
	Replayed bool `json:",omitempty"` // somebody knows that the peer has all writes
}

var errNoMirror = fault.New(fault.NotFound, "there is no such mirror")

// MirrorFilter selects mirrors. Empty fields select all.
type MirrorFilter struct {
	Tenant, Cluster string
	Before          string // only mirrors before this id
}

// ShownMirror is a mirror with the name of its image.
type ShownMirror struct {
	Mirror
	Pool  string `db:"pool"`
	Image string `db:"image"`
}

const selectShown = "SELECT m.*, p.name AS pool, " + shown + ` AS image FROM mirrors m JOIN volumes v ON v.id = m.volume_id
	JOIN pools p ON p.id = v.pool_id`

// ShownMirrors lists mirrors in the caller's scope, newest first.
func (s *Store) ShownMirrors(ctx context.Context, f MirrorFilter, limit int) (all []ShownMirror, err error) {
	condition, args := f.condition(ctx)
	return all, s.db.Select(ctx, &all, selectShown+" WHERE m.id IN (SELECT id FROM mirrors WHERE "+condition+
		") ORDER BY m.id DESC LIMIT ?", append(args, limit)...)
}

// ShownMirror returns a mirror with the name of its image.
func (s *Store) ShownMirror(ctx context.Context, m Mirror) (ShownMirror, error) {
	out := ShownMirror{Mirror: m}
	err := s.db.Get(ctx, &out, selectShown+" WHERE m.id = ?", m.ID)
	return out, db.NotFound(err, "there is no such mirror")
}

// Mirrors lists mirrors in the caller's scope, newest first.
func (s *Store) Mirrors(ctx context.Context, f MirrorFilter, limit int) (all []Mirror, err error) {
	condition, args := f.condition(ctx)
	return all, s.db.Select(ctx, &all, "SELECT * FROM mirrors WHERE "+condition+" ORDER BY id DESC LIMIT ?",
		append(args, limit)...)
}

func (f *MirrorFilter) condition(ctx context.Context) (string, []any) {
	scope := caller.From(ctx).Scope()
	for _, c := range []struct{ condition, value string }{
		{"tenant = ?", f.Tenant}, {"cluster_id = ?", f.Cluster}, {"id < ?", f.Before},
	} {
		if c.value != "" {
			scope = scope.And(c.condition, c.value)
		}
	}
	return scope.SQL()
}

// MirrorTally counts mirrors.
type MirrorTally struct {
	Mirrors   int64 `db:"mirrors"`
	Primary   int64 `db:"is_primary"`
	Secondary int64 `db:"is_secondary"`
	OK        int64 `db:"ok"`
	Warning   int64 `db:"warning"`
	Failing   int64 `db:"failing"`
	Breaches  int64 `db:"breaches"` // of what copies may be old
	// Oldest is the moment that the oldest copy is of; zero: of none that is known.
	Oldest db.Time `db:"oldest"`
}

// LateMirrors is a condition on rows of mirrors: their copies are older than they may be. It takes a time twice.
const LateMirrors = `(rpo_secs > 0 AND state = 'enabled' AND (synced_at < ? - rpo_secs * 1000000
	OR synced_at IS NULL AND created_at < ? - rpo_secs * 1000000))`

// CountMirrors counts the mirrors in the caller's scope.
func (s *Store) CountMirrors(ctx context.Context, cluster string) (t MirrorTally, err error) {
	f, now := MirrorFilter{Cluster: cluster}, db.At(s.now())
	condition, args := f.condition(ctx)
	sum := func(condition string) string {
		return "COALESCE(SUM(CASE WHEN " + condition + " THEN 1 ELSE 0 END), 0)"
	}
	err = s.db.Get(ctx, &t, "SELECT COUNT(*) AS mirrors, "+sum("role = 'primary'")+" AS is_primary, "+
		sum("role = 'secondary'")+" AS is_secondary, "+sum("health = 'ok'")+" AS ok, "+
		sum("health = 'warning'")+" AS warning, "+sum("health = 'error'")+" AS failing, "+sum(LateMirrors)+" AS breaches, MIN(synced_at) AS oldest FROM mirrors WHERE "+condition,
		append([]any{now, now}, args...)...)
	return t, err
}

// CountPeers counts the peers of a cluster, or all, and those that do not answer.
func (s *Store) CountPeers(ctx context.Context, cluster string) (all, unreachable int64, err error) {
	var n struct {
		All    int64 `db:"peers"`
		Silent int64 `db:"silent"`
	}
	err = s.db.Get(ctx, &n, `SELECT COUNT(*) AS peers, COALESCE(SUM(CASE WHEN state = ? THEN 1 ELSE 0 END), 0) AS silent
		FROM peers WHERE (? = '' OR cluster_id = ? OR remote_id = ?)`, PeerUnreachable, cluster, cluster, cluster)
	return n.All, n.Silent, err
}

// Mirror returns a mirror in the caller's scope.
func (s *Store) Mirror(ctx context.Context, id string) (Mirror, error) {
	return mirrorIn(ctx, s.db, id, "")
}

func mirrorIn(ctx context.Context, q db.Querier, id, lock string) (m Mirror, err error) {
	err = q.Get(ctx, &m, "SELECT * FROM mirrors WHERE id = ?"+lock, id)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(m.Tenant) {
		return Mirror{}, errNoMirror
	}
	return m, err
}

// MirrorOf returns the mirror of a volume in the caller's scope.
func (s *Store) MirrorOf(ctx context.Context, volume string) (Mirror, error) {
	if _, err := s.Volume(ctx, volume); err != nil {
		return Mirror{}, err
	}
	m, found, err := mirrorOfVolume(ctx, s.db, volume)
	if err == nil && !found {
		err = fault.New(fault.NotFound, "the volume is not mirrored")
	}
	return m, err
}

func mirrorOfVolume(ctx context.Context, q db.Querier, volume string) (m Mirror, found bool, err error) {
	err = q.Get(ctx, &m, "SELECT * FROM mirrors WHERE volume_id = ?", volume)
	if errors.Is(err, db.ErrNoRows) {
		return m, false, nil
	}
	return m, err == nil, err
}

// Twin returns the mirror of the same volume at the other site. Without one that the gateway knows, it has no id.
func (s *Store) Twin(ctx context.Context, m *Mirror) (Mirror, error) { return twinIn(ctx, s.db, m) }

func twinIn(ctx context.Context, q db.Querier, m *Mirror) (twin Mirror, err error) {
	if m.GlobalID == "" {
		return twin, nil
	}
	err = q.Get(ctx, &twin, "SELECT * FROM mirrors WHERE global_id = ? AND id <> ? ORDER BY id LIMIT 1", m.GlobalID, m.ID)
	if errors.Is(err, db.ErrNoRows) {
		err = nil
	}
	return twin, err
}

// unmirrored refuses what must not be done to a volume that is mirrored.
func unmirrored(ctx context.Context, q db.Querier, v *Volume) error {
	_, found, err := mirrorOfVolume(ctx, q, v.ID)
	if err == nil && found {
		err = fault.New(fault.Conflict, "the volume is mirrored; disable that first")
	}
	return err
}

// writable refuses what must not be done to a volume that is the copy of one at another site.
func writable(ctx context.Context, q db.Querier, v *Volume) error {
	m, found, err := mirrorOfVolume(ctx, q, v.ID)
	if err == nil && found && m.Role == Secondary {
		err = fault.New(fault.Conflict, "the volume is the copy of one at another site; do this there, or promote it")
	}
	return err
}

// idle refuses a job about a mirror while another one is under way, at either site.
func idle(ctx context.Context, tx *db.Tx, m *Mirror) error {
	var n int64
	err := tx.Get(ctx, &n, "SELECT COUNT(*) FROM mirrors WHERE (id = ? OR global_id = ? AND global_id <> '') AND NOT ("+
		fmt.Sprintf(lost, "mirrors")+")", m.ID, m.GlobalID)
	if err == nil && n > 0 {
		err = fault.New(fault.Conflict, "another job about the volume's mirroring is under way")
	}
	return err
}

// EnableMirror stores that a volume is to be mirrored to a peer, named by its id or its name, and begins the job.
func (s *Store) EnableMirror(
	ctx context.Context, volume, peer string, mode driver.MirrorMode, begin Begin,
) (m Mirror, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		v, err := volumeIn(ctx, tx, volume, tx.ForUpdate())
		if err != nil {
			return err
		}
		place, err := placeOf(ctx, tx, &v)
		if err != nil {
			return err
		}
		p, err := peerIn(ctx, tx, peer, "")
		known := err == nil
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		switch {
		case v.Foreign:
			return place.Backend.foreign()
		case place.Backend.Mode == ReadOnly:
			return place.Backend.Writable()
		case place.Pool.Kind != driver.PoolRBD || v.Kind != driver.Block:
			return fault.New(fault.Invalid, "the backend %s does not mirror volumes", place.Backend.Name).WithCode("unsupported")
		case !known:
			return fault.InvalidField("peer", "there is no peer %s", peer)
		case p.ClusterID != v.ClusterID && p.RemoteID != v.ClusterID:
			return fault.InvalidField("peer", "is a peer of another cluster than the volume's")
		case p.OneWay && p.ClusterID == v.ClusterID:
			return fault.InvalidField("peer", "only sends volumes, and takes none")
		}
		if err := v.State.Readable(); err != nil {
			return err
		}
		if err := unmirrored(ctx, tx, &v); err != nil {
			return err
		}
		if p.RemoteID != "" { // the copy belongs to the tenant, too
			if err := s.admit(ctx, tx, "tenant_id", v.Tenant, Use{Volumes: 1, Bytes: v.Size}); err != nil {
				return err
			}
		}
		m = Mirror{
			ID: NewID(), VolumeID: v.ID, Tenant: v.Tenant, ClusterID: v.ClusterID, PeerID: p.ID, Mode: mode,
			State: MirrorEnabling, Role: Primary, Health: driver.Unknown, CreatedAt: db.At(s.now()),
		}
		if mode == driver.BySnapshots {
			m.RPO = int64(DefaultRPO / time.Second)
		}
		if err := tx.Insert(ctx, "mirrors", &m); err != nil {
			return err
		}
		j = newJob(JobEnableMirror, m.Tenant, TypeMirror, m.ID)
		if err := begin(ctx, tx, &j, MirrorArgs{ID: m.ID}); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: JobEnableMirror, Target: m.ID, Tenant: m.Tenant,
			Message: fmt.Sprintf("%s to %s by %s", v.Name, p.Name, mode),
		})
	})
	return m, j, err
}

// ChangeMirror begins a job of a kind about a mirror.
func (s *Store) ChangeMirror(
	ctx context.Context, kind string, a MirrorArgs, begin Begin,
) (m Mirror, j Job, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if m, err = mirrorIn(ctx, tx, a.ID, ""); err != nil {
			return err
		}
		var both []string // locked in the same order by everybody
		if err := tx.Select(ctx, &both, "SELECT id FROM mirrors WHERE id = ? OR global_id = ? AND global_id <> '' ORDER BY id"+
			tx.ForUpdate(), m.ID, m.GlobalID); err != nil {
			return err
		}
		if m, err = mirrorIn(ctx, tx, a.ID, ""); err != nil {
			return err
		}
		if m.State == MirrorDisabling && kind == JobDisableMirror {
			if j, err = newest(ctx, tx, kind, m.ID); err != nil || j.ID != "" {
				return err
			}
		}
		if err := idle(ctx, tx, &m); err != nil {
			return err
		}
		if kind == JobDisableMirror {
			if _, err := tx.Exec(ctx, "UPDATE mirrors SET state = ?, last_error = '' WHERE id = ?", MirrorDisabling, m.ID); err != nil {
				return err
			}
			m.State = MirrorDisabling
		}
		j = newJob(kind, m.Tenant, TypeMirror, m.ID)
		if err := begin(ctx, tx, &j, a); err != nil {
			return err
		}
		message := ""
		if a.Force {
			message = "by force"
		}
		return s.note(ctx, tx, audit.Entry{Action: kind, Target: m.ID, Tenant: m.Tenant, Message: message})
	})
	return m, j, err
}

// SetRPO stores how old the copy of a volume may be, in seconds; 0: nothing is said.
func (s *Store) SetRPO(ctx context.Context, id string, secs int64) (m Mirror, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		if m, err = mirrorIn(ctx, tx, id, tx.ForUpdate()); err != nil {
			return err
		}
		// Which site is primary changes: both have to know.
		if _, err := tx.Exec(ctx, "UPDATE mirrors SET rpo_secs = ? WHERE id = ? OR global_id = ? AND global_id <> ''", secs, id,
			m.GlobalID); err != nil {
			return err
		}
		m.RPO = secs
		return s.note(ctx, tx, audit.Entry{
			Action: "mirror.rpo", Target: id, Tenant: m.Tenant, Message: fmt.Sprintf("%d s", secs),
		})
	})
	return m, err
}

// EndMirror stores how a job that changes a mirror ended: what the storage system says of it, if it could be asked, and
// why the job has failed.
func (s *Store) EndMirror(ctx context.Context, id string, seen *driver.Mirror, failed error) error {
	return s.update(ctx, func(tx *db.Tx) error {
		m, err := mirrorIn(ctx, tx, id, tx.ForUpdate())
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		m.LastError = ""
		if failed != nil {
			m.LastError = fault.From(failed).Message
		}
		switch {
		case seen != nil && seen.Enabled:
			m.State = MirrorEnabled
		case failed != nil && (m.State == MirrorEnabling || m.State == MirrorDisabling):
			m.State = MirrorFailed
		}
		if seen != nil {
			m.GlobalID, m.Role = seen.GlobalID, roleOf(seen)
		}
		_, err = tx.Exec(ctx, "UPDATE mirrors SET state = ?, role = ?, global_id = ?, last_error = ? WHERE id = ?", m.State, m.Role,
			m.GlobalID, m.LastError, id)
		return err
	})
}

func roleOf(seen *driver.Mirror) string {
	if seen.Primary {
		return Primary
	}
	return Secondary
}

// DropMirror stores that a volume is not mirrored any more. Its copy at the other site goes with that: it is being
// removed there.
func (s *Store) DropMirror(ctx context.Context, id string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		m, err := mirrorIn(ctx, tx, id, tx.ForUpdate())
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		twin, err := twinIn(ctx, tx, &m)
		if err == nil && twin.ID != "" {
			_, err = tx.Exec(ctx, "UPDATE mirrors SET state = ? WHERE id = ?", MirrorDisabling, twin.ID)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "DELETE FROM mirrors WHERE id = ?", id)
		}
		return err
	})
}

// ForgetSnapshots stores that the snapshots of a volume are gone, with what it held.
func (s *Store) ForgetSnapshots(ctx context.Context, volume string) error {
	return s.update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE snapshots SET deleted_at = ? WHERE volume_id = ? AND deleted_at IS NULL",
			db.At(s.now()), volume)
		return err
	})
}

// EndRehearsal stores how the reading of a copy ended, for both sites.
func (s *Store) EndRehearsal(ctx context.Context, m *Mirror, r Rehearsal) error {
	return s.update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE mirrors SET rehearsal = ? WHERE id = ? OR global_id = ? AND global_id <> ''",
			db.JSON[Rehearsal]{V: r}, m.ID, m.GlobalID)
		return err
	})
}

// Seen is a mirrored volume that a pool has told.
type Seen struct {
	driver.Mirror
	Health   driver.Health
	SyncedAt time.Time // zero: not known
}

// SeeMirror stores what a pool tells about one of its mirrored volumes. One that is not known is taken in if the
// gateway made it, here or at the other site; complete reports whether it is there as a volume.
func (s *Store) SeeMirror(
	ctx context.Context, pool *Pool, seen *Seen, complete func(driver.Name) (bool, error),
) error {
	now := db.At(s.now())
	known, err := s.touch(ctx, pool, seen, now)
	if err != nil || known {
		return err
	}
	v, twin, err := s.counterpart(ctx, pool, seen)
	if err != nil || v.ID == "" && twin.ID == "" && !driver.IsMade(seen.Shown) {
		return err // it is somebody else's
	}
	name := driver.Name{Pool: pool.Name, Native: seen.Shown}
	switch {
	case v.ID != "":
		name = v.In(pool.Name)
	case twin.ID != "":
		of, err := s.Volume(ctx, twin.VolumeID)
		if err != nil {
			return err
		}
		name = of.In(pool.Name)
	}
	if ok, err := complete(name); err != nil || !ok {
		return err
	}
	return s.takeIn(ctx, pool, seen, name, now)
}

// lately is how long what was seen of a site counts as its present state: some passes.
const lately = 2 * time.Minute

// touch stores what is seen of a mirror that is known.
func (s *Store) touch(ctx context.Context, pool *Pool, seen *Seen, now db.Time) (known bool, err error) {
	err = s.update(ctx, func(tx *db.Tx) error {
		var m Mirror
		err := tx.Get(ctx, &m, "SELECT * FROM mirrors WHERE cluster_id = ? AND global_id = ?"+tx.ForUpdate(), pool.ClusterID,
			seen.GlobalID)
		if known = err == nil; !known {
			return db.NotFound(err, "unknown")
		}
		synced := m.SyncedAt
		if !seen.SyncedAt.IsZero() && seen.SyncedAt.After(synced.Time) {
			synced = db.At(seen.SyncedAt)
		}
		if m.State == MirrorFailed {
			m.State, m.LastError = MirrorEnabled, ""
		}
		health := seen.Health
		if seen.Primary { // which no site says: what both have written is a split brain
			var others int64
			if err := tx.Get(ctx, &others, "SELECT COUNT(*) FROM mirrors WHERE global_id = ? AND cluster_id <> ? AND role = ? AND seen_at > ?",
				seen.GlobalID, pool.ClusterID, Primary, db.At(now.Add(-lately))); err != nil {
				return err
			}
			if others > 0 {
				health = driver.Critical
			}
		}
		_, err = tx.Exec(ctx, `UPDATE mirrors SET state = ?, last_error = ?, role = ?, health = ?, sites = ?, synced_at = ?,
			seen_at = ? WHERE id = ?`, m.State, m.LastError, roleOf(&seen.Mirror), health, db.JSON[[]driver.MirrorSite]{V: seen.Sites}, synced, now, m.ID)
		return err
	})
	if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return known, err
}

// counterpart returns the volume that a mirrored image is, if it is known, and the mirror at the other site.
func (s *Store) counterpart(ctx context.Context, pool *Pool, seen *Seen) (v Volume, twin Mirror, err error) {
	err = s.db.Get(ctx, &v, `SELECT * FROM volumes WHERE pool_id = ? AND deleted_at IS NULL AND NOT foreign_made
		AND (named AND name = ? OR NOT named AND native = ?)`, pool.ID, seen.Shown, seen.Shown)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return v, twin, err
	}
	twin, err = twinIn(ctx, s.db, &Mirror{GlobalID: seen.GlobalID})
	return v, twin, err
}

// takeIn stores a mirror that is not known, and if need be its volume.
func (s *Store) takeIn(
	ctx context.Context, pool *Pool, seen *Seen, name driver.Name, now db.Time,
) error {
	return s.update(ctx, func(tx *db.Tx) error {
		v, twin, err := s.counterpartIn(ctx, tx, pool, seen, name)
		if err != nil {
			return err
		}
		if v.ID == "" {
			if v, err = s.copyOf(ctx, tx, pool, &twin, name); err != nil {
				return err
			}
		} else if _, found, err := mirrorOfVolume(ctx, tx, v.ID); err != nil || found {
			return err // its job is under way
		}
		m := Mirror{
			ID: NewID(), VolumeID: v.ID, Tenant: v.Tenant, ClusterID: pool.ClusterID, PeerID: twin.PeerID, Mode: seen.Mode,
			State: MirrorEnabled, Role: roleOf(&seen.Mirror), GlobalID: seen.GlobalID, RPO: twin.RPO, Health: seen.Health,
			Sites: db.JSON[[]driver.MirrorSite]{V: seen.Sites}, SeenAt: now, CreatedAt: now,
		}
		if !seen.SyncedAt.IsZero() {
			m.SyncedAt = db.At(seen.SyncedAt)
		}
		if m.PeerID == "" {
			var peers []Peer
			if err := tx.Select(ctx, &peers, "SELECT * FROM peers WHERE cluster_id = ? OR remote_id = ? LIMIT 2", pool.ClusterID,
				pool.ClusterID); err != nil {
				return err
			}
			if len(peers) == 1 {
				m.PeerID = peers[0].ID
			}
		}
		if err := tx.Insert(ctx, "mirrors", &m); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{
			Action: "mirror.take_in", Target: m.ID, Tenant: m.Tenant, Message: name.Native + " is mirrored in the pool " + pool.Name,
		})
	})
}

func (s *Store) counterpartIn(
	ctx context.Context, tx *db.Tx, pool *Pool, seen *Seen, name driver.Name,
) (v Volume, twin Mirror, err error) {
	err = tx.Get(ctx, &v, "SELECT * FROM volumes WHERE pool_id = ? AND native = ? AND deleted_at IS NULL"+tx.ForUpdate(),
		pool.ID, name.Native)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return v, twin, err
	}
	twin, err = twinIn(ctx, tx, &Mirror{GlobalID: seen.GlobalID})
	return v, twin, err
}

// copyOf stores the volume that a mirror at another site has at this one. It belongs to the same tenant.
func (s *Store) copyOf(
	ctx context.Context, tx *db.Tx, pool *Pool, twin *Mirror, name driver.Name,
) (v Volume, err error) {
	now := db.At(s.now())
	v = Volume{
		ID: NewID(), Name: name.Native, ClusterID: pool.ClusterID, PoolID: pool.ID, Native: name.Native, Kind: driver.Block,
		State: state.Available, Health: driver.Unknown, Used: -1, CreatedAt: now, UpdatedAt: now,
	}
	if twin.ID != "" {
		of, err := volumeIn(ctx, tx, twin.VolumeID, "")
		if err != nil {
			return v, err
		}
		v.Tenant, v.Asked, v.Size, v.Named = of.Tenant, of.Asked, of.Size, of.Named
		if v.Name = of.Name; !v.Named {
			var backend string
			if err := tx.Get(ctx, &backend, `SELECT b.name FROM backends b JOIN clusters c ON c.backend_id = b.id
				WHERE c.id = ?`, pool.ClusterID); err != nil {
				return v, err
			}
			// The name of the original is taken within its tenant.
			v.Name = of.Name + "-" + backend
			var taken int64
			if err := tx.Get(ctx, &taken, `SELECT COUNT(*) FROM volumes WHERE tenant = ? AND name = ? AND deleted_at IS NULL
				AND NOT foreign_made AND NOT named`, v.Tenant, v.Name); err != nil {
				return v, err
			}
			if taken > 0 || len(v.Name) > 63 {
				v.Name = v.Native
			}
		}
		v.belongs(of.Owner.V)
	} else {
		v.belongs(Owner{})
	}
	return v, tx.Insert(ctx, "volumes", &v)
}

// UnseenMirrors lists mirrors of a cluster that no pass since a time has seen.
func (s *Store) UnseenMirrors(ctx context.Context, cluster string, since time.Time) (all []Mirror, err error) {
	return all, s.db.Select(ctx, &all, `SELECT * FROM mirrors WHERE cluster_id = ? AND state <> ? AND created_at < ?
		AND (seen_at IS NULL OR seen_at < ?) AND `+fmt.Sprintf(lost, "mirrors")+` ORDER BY id LIMIT 100`, cluster, MirrorEnabling,
		db.At(since), db.At(since))
}

// EndUnseen stores that the storage system does not mirror a volume any more. gone: it does not have the volume either,
// which is so for a while when it is copied again, too.
func (s *Store) EndUnseen(ctx context.Context, m *Mirror, gone bool) error {
	return s.update(ctx, func(tx *db.Tx) error {
		if m.State != MirrorDisabling {
			_, err := tx.Exec(ctx, "UPDATE mirrors SET state = ?, health = ?, last_error = ? WHERE id = ? AND state = ?", MirrorFailed,
				driver.Critical, "the storage system does not mirror the volume any more, or is about to copy it again", m.ID, m.State)
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM mirrors WHERE id = ?", m.ID); err != nil || !gone || m.Role != Secondary {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE volumes SET deleted_at = ? WHERE id = ? AND deleted_at IS NULL", db.At(s.now()), m.VolumeID)
		return err
	})
}

// MirrorsIn counts the volumes of a pool that are mirrored.
func (s *Store) MirrorsIn(ctx context.Context, pool string) (n int64, err error) {
	return n, s.db.Get(ctx, &n, `SELECT COUNT(*) FROM mirrors m JOIN volumes v ON v.id = m.volume_id WHERE v.pool_id = ?`, pool)
}

// NotePoolScope writes the audit entry of a change of what of a pool is mirrored.
func (s *Store) NotePoolScope(ctx context.Context, at *Place, scope driver.MirrorScope) error {
	return s.update(ctx, func(tx *db.Tx) error {
		return s.note(ctx, tx, audit.Entry{
			Action: "pool.mirroring", Target: at.Pool.ID, Message: at.Backend.Name + "/" + at.Pool.Name + " to " + string(scope),
		})
	})
}

// LostMirrors lists mirrors that wait for the end of a job that there is not any more.
func (s *Store) LostMirrors(ctx context.Context) (all []Mirror, err error) {
	return all, s.db.Select(ctx, &all, "SELECT * FROM mirrors WHERE state = ? AND "+fmt.Sprintf(lost, "mirrors")+
		" ORDER BY id LIMIT 100", MirrorEnabling)
}

// DueMirrors takes the mirrors of a cluster whose changes are to be sent now: nobody else gets them until half of
// their time is over again.
func (s *Store) DueMirrors(ctx context.Context, cluster string) (due []Mirror, err error) {
	now := s.now()
	var all []Mirror
	if err := s.db.Select(ctx, &all, `SELECT * FROM mirrors WHERE cluster_id = ? AND state = ? AND role = ? AND mode = ?
		AND rpo_secs > 0 AND (sent_at IS NULL OR sent_at <= ? - rpo_secs * 500000) ORDER BY id`, cluster, MirrorEnabled, Primary,
		driver.BySnapshots, db.At(now)); err != nil {
		return nil, err
	}
	for _, m := range all {
		var taken int64
		if err := s.update(ctx, func(tx *db.Tx) error {
			taken, err = tx.Exec(ctx, "UPDATE mirrors SET sent_at = ? WHERE id = ? AND (sent_at IS NULL OR sent_at = ?)", db.At(now), m.ID,
				m.SentAt)
			return err
		}); err != nil {
			return due, err
		}
		if taken > 0 {
			due = append(due, m)
		}
	}
	return due, nil
}
