//go:build linux

// Package volumes looks into disks of other machines from within a guest that was made for that: it
// finds the file systems on the guest's disks, mounts them, and lists their files. The guest agent's
// program has it as commands (mainstay-guest volumes, files and resolve), which write JSON.
//
//	volumes.go   finds file systems and mounts them read-only
//	kind.go      what is on a disk, by its first bytes
//	files.go     folders, and where a path leads
//
// # Invariants
//
//   - It runs in a guest without a network and without anything of value. The kernel of that guest,
//     and no other, reads file systems that somebody else has written.
//   - Symbolic links lead to places in the same file system, as they did in the machine whose disk it
//     is: paths are looked at after a chroot.
//   - File systems are mounted without devices, and nothing on them is executed.
package volumes
