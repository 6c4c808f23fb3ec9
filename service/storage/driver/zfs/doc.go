// Package zfs keeps volumes in a ZFS dataset of this host: block volumes are zvols, and volumes for files are file
// systems with a quota (refquota). It runs the programs zfs and zpool.
//
//	zfs.go        Driver: opens a dataset, tells what is in it
//	command.go    runs zfs and zpool, and reads what they print
//	volume.go     makes, expands and deletes volumes
//	trash.go      keeps deleted volumes for a time
//	snapshot.go   snapshots and clones
//
// # Names
//
// All is directly below the dataset of the backend, BASE:
//
//	BASE/vol-ID              a volume
//	BASE/vol-ID@snap-ID      a snapshot of it
//	BASE/new-ID-RANDOM       a clone that is not complete
//	BASE/gone-RANDOM         a volume that was deleted and still has snapshots
//	BASE/kept-ID             a volume in the trash
//
// The user property mainstay:name holds the native name. A dataset is the gateway's only if it has both: its name and
// this property. What ZFS inherits, or somebody renames, therefore never looks like the gateway's.
//
// # Invariants
//
//   - A volume is made by one command, or renamed to its name when it is complete. Every call looks at what is there
//     before it does anything, so that it can be repeated after any of its commands.
//   - No command is recursive or forced (-r, -R, -f): what the gateway did not make is in the way, and never destroyed.
//   - A snapshot from which volumes were cloned is marked to go with the last of them (zfs destroy -d), and is gone for
//     callers at once. A volume with snapshots is renamed, and goes with the last of them.
//   - Arguments are the name of the dataset from the settings, which is checked, with names that match
//     driver.IsMade: none is an option, or another dataset.
//   - Commands in the kernel may hang and cannot be killed then. A call returns soon after its context all the same,
//     and at most maxCommands commands are under way.
//
// Sizes are rounded up to whole MiB, which fit all sizes of blocks. Volumes take room as they are written to.
//
// It imports driver.
package zfs
