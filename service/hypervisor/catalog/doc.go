// Package catalog keeps what VMs are made of: disk images, kernels with initial RAM
// disks, and root file systems of sandboxes, each by the SHA-256 of what was taken in.
// Images are names for contents, which are stored (package record).
//
//	catalog.go     the Catalog: what an image stands for, and cleaning up what nothing needs
//	addition.go    taking images in, as operations
//	signature.go   minisign
//	contents.go, rootfs.go   the Contents in their folders:
//
//	content/SHA256/content.json   what it is
//	content/SHA256/disk.qcow2     a disk, as qemu-img wrote it
//	content/SHA256/kernel, initrd
//	content/SHA256/rootfs/
//	incoming/ID/                  what is being taken in
//
// # Invariants
//
//   - A content appears whole, by the renaming of its folder, and never changes.
//   - What is taken in is copied first and looked at then: nobody can change it between
//     the look and the use.
//   - A VM reads contents and writes none: they are readable by all, and their owner is
//     the daemon.
//   - What is used and no VM stands on yet is held (Hold), so that it is not cleaned meanwhile.
//
// It imports caller, record, operation, admission, image, demo and backend/sandbox.
package catalog
