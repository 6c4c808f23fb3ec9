// Package ceph keeps volumes as RBD images of a Ceph cluster.
//
// What needs librados is in a program of its own, mainstay-ceph (folder cephd), so that the gateway
// needs no C library, and so that a call that hangs in librados can be ended with its process.
//
//	ceph.go       Driver: opens a cluster, which calls it makes and how they fail
//	helper.go     a process of mainstay-ceph
//	breaker.go    leaves a cluster alone for a while that does not answer
//	inspect.go    what the cluster tells about itself, its pools and OSDs
//	volume.go     volumes, snapshots and clones
//	image.go      what only images have: chosen names, limits, moves between pools
//	group.go      groups of images
//	data.go       the content of snapshots, and volumes that are filled
//	osd.go        changes of OSDs
//	wire/         what is said between driver and helper
//	cephd/        the helper
//
// # Processes
//
// A driver has one helper for short calls, with one connection that stays. Work that takes as long as
// an image is large gets a process of its own: the removal of what was deleted, flattening, shrinking, putting back,
// moving and counting. It is killed when its caller gives up, and shut out of the cluster.
//
//	(none) --first call--> starting --welcome--> serving --call unanswered, or its end--> (none)
//
// A helper that leaves a call unanswered for Config.Within is killed, for half a minute longer if the call takes the
// lock of an image, since somebody who was killed may have it. All its calls fail as unavailable, and the breaker
// opens: calls fail at once for five seconds, then one is let through, and if it is not answered either, the wait
// doubles up to a minute. A caller who gives up earlier gets an
// error at once and ends nothing: the call goes on, and the next one for the same volume waits for it.
// The address of a killed helper is shut out by the cluster (blocklist) before the next call, so that
// nothing it has sent still happens and its watches are gone. If the gateway is killed, its helpers have
// themselves shut out. If the key may not do that, watches end by themselves within 30 seconds.
//
// # Names
//
// The volume vol-ID is the image of that name, the snapshot snap-ID a snapshot of that name on it.
// Users may have chosen other names for both. An object in each pool tells where the snapshots are. Package cephd tells
// how images are marked.
//
// # Invariants
//
//   - A driver talks to one cluster: the first fsid that it sees, or that of its Config, is the only one.
//   - A deleted volume is gone for callers at once. If it has snapshots, its image stays without content
//     of its own until the last of them, and the last clone of them, is gone. Until then its name cannot
//     be used again.
//   - Clones share data with their snapshots (clone v2). The deletion of a snapshot leaves its data to
//     its clones, and that space is free again only when they are gone.
//   - A volume that clients have open is not deleted: the fault names them.
//
// Images of format 1, images in RBD namespaces and CephFS volumes are not listed.
//
// It imports driver.
package ceph
