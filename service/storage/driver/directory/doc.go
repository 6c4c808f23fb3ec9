// Package directory keeps volumes in a folder of this host, such as a mounted NFS export. The gateway uses
// one by default.
//
//	directory.go   Driver: opens a folder, tells what is in it
//	volume.go      makes, expands and deletes volumes
//	deleted.go     keeps deleted volumes for a time, and puts one volume in the place of another
//	snapshot.go    snapshots and clones
//	data.go        the data of snapshots, and volumes that are made of copies
//	item.go        what volumes and snapshots have in common: how they come and go
//	tree.go        copies of folders
//
// # Layout
//
//	mainstay.json            the folder's id
//	volumes/NAME/            a volume
//	  volume.json            its description
//	  data                   a block volume: a file with holes
//	  content/               a volume for files
//	snapshots/NAME/          a snapshot, the same with snapshot.json
//	deleted/NAME/            a volume that can be brought back
//	incoming/, trash/        what is being made or removed
//	NAME.img, NAME.raw, NAME/  are listed as volumes that the gateway did not make
//
// # Invariants
//
//   - Volumes and snapshots are made in incoming and renamed to their place when they are complete
//     and on the disk. What a killed process leaves there is removed by the next attempt; the next start
//     empties trash, too.
//   - An attempt whose folder in incoming is gone fails: two processes that make the same volume do not
//     mix their data.
//   - Paths are opened below the folder's own descriptors (os.Root): symbolic links that users of a
//     volume make lead nowhere outside of it.
//   - Room is checked before copies are made, and a copy that finds none leaves nothing.
//
// A folder does not keep volumes for files within their sizes, and block volumes take room as they
// are written to. Where blocks can be shared between files (XFS, Btrfs), snapshots of block volumes
// are of one moment; elsewhere, and of folders, they are copies of what may change meanwhile.
//
// Calls of the file system cannot be broken off: on an NFS server that hangs, calls hang too.
//
// It imports driver.
package directory
