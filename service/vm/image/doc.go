// Package image makes the images that VMs are made of: it builds them of distributions' packages, downloads
// distributions' own, and takes in files of the host. The hypervisor daemon keeps the result in its catalog.
//
//	image.go      Manager: begins jobs, runs them, ends them, cleans up
//	build.go      the steps of a build; distro.go, redhat.go: the tools and packages of each distribution
//	guest.go      the files that make the packages a guest of Mainstay; disk.go: the bootable disk
//	process_*.go  tools as confined processes
//	turns.go      how many work at once, by turns of tenants; log.go: what tools print, bounded
//	download.go   downloads; sources.go, sources.json: what there is; checksum.go: lists of checksums
//	import_*.go   files of the host
//	resize.go     larger disks
//
// # States of an image
//
//	pending ---> building, downloading, importing ---> completed
//	   |                      |    |
//	   +----------------------+----+---> failed, cancelled
//
// A job that is interrupted by the end of the process begins again; a download goes on where it was.
//
// # Invariants
//
//   - Tools get arguments, never a shell with text of users. Names of packages have a strict pattern.
//   - What is installed in an image runs its own programs as root of a user namespace that maps to nobody on
//     the host, and in a process namespace that ends with the tool. The tool ends with the service.
//   - Nothing is mounted on the host. The disk is made of a folder, without loop devices.
//   - Files that such programs may have put in place are opened without following links.
//   - All work is in a folder of the image, which is limited in size, and removed when its job ends. What
//     is left after a crash is removed at the next start.
//   - An image gets into the catalog after its checksum was verified, under a name of its tenant. The daemon
//     inspects it again, since it trusts nobody's images.
//
// It imports caller, driver, job and record.
package image
