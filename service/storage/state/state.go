// Package state holds the states of volumes, snapshots, buckets and backups, and the rules by which they change, as
// functions of plain values.
//
//	             create            done                    expand            done
//	(none) ────────────► creating ──────► available ◄──► expanding ─────► available
//	                        │ failed          │   ▲          │ failed
//	                        ▼                 │   │          ▼
//	                      error               │   │       error_expanding ── expand ──► expanding
//	                                          │   │
//	                  the storage system no   │   │ it reports it again
//	                  longer reports it       ▼   │
//	                                         missing
//
//	Of every state at rest: delete ──► deleting ──► (none), or error_deleting, of which delete tries again.
//
// A volume that is put back to a snapshot is restoring, and one that a job changes otherwise is in maintenance:
//
//	available ◄──► restoring ── failed ──► error ── restore ──► restoring
//	available ◄──► maintenance
//
// A volume may be kept in the trash for a time instead of being removed, out of which it comes back or goes for ever:
//
//	available ── discard ──► deleting ──► trashed ── undelete ──► restoring ──► available
//	                                         └────── purge ─────► deleting ───► (none)
//
// A volume that users have open (in-use) may be expanded like one that is available, and
// goes back to in-use. States after OpenStack Cinder's.
//
// It imports fault.
package state

import "github.com/mainstay-infra/mainstay/kit/fault"

// Volume is the state of a volume.
type Volume string

// The states of volumes.
const (
	Creating       Volume = "creating"
	Available      Volume = "available"
	InUse          Volume = "in-use"
	Expanding      Volume = "expanding"
	Restoring      Volume = "restoring"
	Maintenance    Volume = "maintenance"
	Deleting       Volume = "deleting"
	Failed         Volume = "error"
	DeletionFailed Volume = "error_deleting"
	GrowthFailed   Volume = "error_expanding"
	Missing        Volume = "missing"
	Trashed        Volume = "trashed" // only the list of the trash shows it
)

// Action is what a job does to a volume.
type Action string

// The actions.
const (
	Create  Action = "create"
	Expand  Action = "expand"
	Restore Action = "restore"
	Change  Action = "change" // what clients notice little of: limits, flattening, a smaller size
	Move    Action = "move"   // to another pool
	Delete  Action = "delete"

	Discard  Action = "discard"  // into the trash
	Undelete Action = "undelete" // out of it
	Purge    Action = "purge"    // what is in it
)

// actions tells, for each action, the states that it begins in, the state meanwhile, and the state after
// it has failed. Empty: the state before.
var actions = map[Action]struct {
	from          []Volume
	during, after Volume
}{
	Create:  {[]Volume{""}, Creating, Failed},
	Expand:  {[]Volume{Available, InUse, GrowthFailed}, Expanding, GrowthFailed},
	Restore: {[]Volume{Available, Failed}, Restoring, Failed},
	Change:  {[]Volume{Available, InUse}, Maintenance, ""},
	// A volume between two pools is missing in the first.
	Move: {[]Volume{Available, Missing}, Maintenance, ""},
	Delete: {
		[]Volume{Available, Failed, DeletionFailed, GrowthFailed, Missing}, Deleting, DeletionFailed,
	},
	// What was never made, or is not there, cannot be kept.
	Discard:  {[]Volume{Available, DeletionFailed, GrowthFailed}, Deleting, DeletionFailed},
	Undelete: {[]Volume{Trashed}, Restoring, Trashed},
	Purge:    {[]Volume{Trashed}, Deleting, Trashed},
}

// AtRest reports whether no job changes a volume in this state.
func (v Volume) AtRest() bool {
	switch v {
	case Available, InUse, Failed, DeletionFailed, GrowthFailed, Missing, Trashed:
		return true
	}
	return false
}

// Begin returns the state while an action is done, or a fault of kind Conflict if it cannot begin.
func (v Volume) Begin(a Action) (Volume, error) {
	rule, ok := actions[a]
	if !ok {
		return v, fault.New(fault.Internal, "there is no action %s", a)
	}
	for _, from := range rule.from {
		if v == from {
			return rule.during, nil
		}
	}
	return v, fault.New(fault.Conflict, "the volume is %s; %s", v, advice(v, a))
}

// advice says what to do about a volume for which an action cannot begin.
func advice(v Volume, a Action) string {
	switch {
	case !v.AtRest():
		return "wait until its job has ended"
	case v == Missing:
		return "its storage no longer reports it; discover the backend again, or delete the volume"
	case v == InUse:
		return "stop those who use it first"
	case a == Discard:
		return "it cannot be kept in the trash; delete it without"
	case a == Expand || a == Restore:
		return "delete it, and create it again"
	}
	return "nothing can be done to it"
}

// End returns the state after an action. before is the state that it began in.
func (v Volume) End(a Action, before Volume, succeeded bool) Volume {
	rule := actions[a]
	switch {
	case v != rule.during:
		return v // something else happened to it meanwhile
	case succeeded && a == Discard:
		return Trashed
	case succeeded && (before == InUse || before == Available):
		return before
	case succeeded:
		return Available
	case rule.after != "":
		return rule.after
	}
	return before
}

// Undo returns the state after an action that was refused, or has failed, without a change. before is the state that it
// began in.
func (v Volume) Undo(a Action, before Volume) Volume {
	if v != actions[a].during || before == "" {
		return v.End(a, before, false)
	}
	return before
}

// Seen returns the state of a volume after a pass over its storage system, which tells it or not.
func (v Volume) Seen(told bool) Volume {
	switch {
	case told && v == Missing:
		return Available
	case !told && (v == Available || v == InUse || v == GrowthFailed):
		return Missing
	}
	return v
}

// Readable reports whether snapshots can be taken of a volume in this state.
func (v Volume) Readable() error {
	switch v {
	case Available, InUse, Expanding, GrowthFailed, Maintenance:
		return nil
	}
	return fault.New(fault.Conflict, "the volume is %s, and has nothing to take a snapshot of", v)
}

// Snapshot is the state of a snapshot.
type Snapshot string

// The states of snapshots.
const (
	SnapshotCreating Snapshot = "creating"
	SnapshotReady    Snapshot = "ready"
	SnapshotDeleting Snapshot = "deleting"
	SnapshotFailed   Snapshot = "error"
)

// Usable returns a fault of kind Conflict unless volumes can be made of a snapshot in this state.
func (s Snapshot) Usable() error {
	if s == SnapshotReady {
		return nil
	}
	return fault.New(fault.Conflict, "the snapshot is %s, not %s", s, SnapshotReady)
}

// Backup is the state of a backup:
//
//	(none) ──► pending ──► uploading ──► verifying ──► completed ──► deleting ──► (none)
//	              └────────────┴─────────────┴─ failed: failed ─────────┘
type Backup string

// The states of backups.
const (
	BackupPending   Backup = "pending"
	BackupUploading Backup = "uploading"
	BackupVerifying Backup = "verifying"
	BackupCompleted Backup = "completed"
	BackupFailed    Backup = "failed"
	BackupDeleting  Backup = "deleting"
)

// AtRest reports whether no job changes a backup in this state.
func (b Backup) AtRest() bool { return b == BackupCompleted || b == BackupFailed }
