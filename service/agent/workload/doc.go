// Package workload runs a site's deployments as containers on Podman.
//
//	manager.go   what is desired, a worker a deployment, what is left over
//	worker.go    one deployment: from what is desired to what runs
//	verify.go    whether a container does its work
//	spec.go      what a container is made from; which images may run
//	report.go    the control plane hears of it
//	store.go     what survives a restart
//
// # A deployment's way
//
//	pending ─► pulling ─► running ◄──► failed (sick, or crashed and started again)
//	   │          │
//	   │          └─► failed: the new version did not start or become healthy; the version before
//	   │                      runs again, and the control plane is asked to roll back
//	   ├─► stopped
//	   └─► denied: no policy pack allows the image
//
// The old container runs until the new image is there, and is kept, stopped, until
// the new container has proved itself, so that going back needs no network.
//
// # Invariants
//
//   - At most one container of a deployment runs.
//   - A container is never started unless the last known policy packs allow its
//     image, with a link or without.
//   - What is desired and what failed is stored before it is acted on; after a
//     restart of the agent or of the host the same container runs again, and a
//     version that had failed is not tried again.
//   - Only containers that carry this agent's label are touched.
package workload
