// Package catalog stores what VMs are made from: disk images, kernels with initial RAM disks, and
// root file systems of sandboxes. Each content is stored under the SHA-256 of its source. Images
// are names for contents and are stored in the database (package record).
//
//	catalog.go     the Catalog: resolves images, and cleans up unused contents
//	addition.go    imports images, as operations
//	resize.go      makes the disks of images larger, as operations
//	signature.go   minisign signatures
//	contents.go, rootfs.go   the Contents in their folders:
//
//	content/SHA256/content.json   its description
//	content/SHA256/disk.qcow2     a disk, as written by qemu-img
//	content/SHA256/kernel, initrd
//	content/SHA256/rootfs/
//	incoming/ID/                  an import in progress
//
// # Invariants
//
//   - A content appears completely, by renaming its folder, and never changes.
//   - A source is copied before it is inspected, so nobody can change it between check and use.
//   - VMs read contents and never write them: contents are world-readable, and the daemon owns
//     them.
//   - Contents that are used before a VM refers to them are held (Hold), so that they are not
//     cleaned.
//
// It imports caller, record, operation, admission, image, demo and backend/sandbox.
package catalog
