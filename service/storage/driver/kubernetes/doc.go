// Package kubernetes keeps volumes as PersistentVolumeClaims in one namespace of a Kubernetes cluster. The CSI drivers
// of the cluster make them. Its storage classes are the pools.
//
//	kubernetes.go   Driver: opens a cluster, tells what it has
//	volume.go       makes, expands and deletes claims
//	snapshot.go     VolumeSnapshots, and claims that are made of them
//	objects.go      the kinds of objects, with the fields that the driver uses
//
// # Names
//
// A claim or VolumeSnapshot has the native name of its volume or snapshot. The label mainstay/native has it, too, and
// without it an object is not the gateway's. A copy of a manifest under another name therefore never looks like the
// gateway's.
//
// # States of a claim
//
//	Pending   the cluster is making the volume: it is not complete, and no call returns it
//	Bound     there is a volume
//	Lost      the volume is gone: it is told as damaged
//
// A claim with a deletion time goes when nothing uses it any more.
//
// # Invariants
//
//   - Objects are made with POST, which never changes one that there is, and changed and deleted by their UID.
//   - Every call looks at what is there before it does anything. A call whose time runs out leaves the object to the
//     cluster, and the next one with the same name finds it.
//   - A claim that a pod uses is not deleted: Kubernetes would delete it as soon as the pod ends.
//   - Nothing of the cluster is written outside of the namespace.
//
// It imports driver.
package kubernetes
