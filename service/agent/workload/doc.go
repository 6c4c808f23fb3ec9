// Package workload runs a site's deployments as containers on Podman.
//
//	manager.go   the desired state, one worker per deployment, and leftovers
//	worker.go    one deployment: from the desired state to running containers
//	verify.go    deciding whether a new container works
//	spec.go      specifications of containers; which images may run
//	report.go    reports to the control plane
//	store.go     the state that survives a restart
//
// # States of a deployment
//
//	pending ─► pulling ─► running ◄──► failed (unhealthy, or crashed and restarted)
//	   │          │
//	   │          └─► failed: the new version did not start or become healthy; the previous version
//	   │                      runs again, and the control plane is asked to roll back
//	   ├─► stopped
//	   └─► denied: no policy pack allows the image
//
// The old container runs until the new image has been pulled. It is kept, stopped, until the new
// container is verified, so that going back needs no network.
//
// # Invariants
//
//   - At most one container of a deployment runs.
//   - A container is started only if the last known policy packs allow its image, with or without a
//     link.
//   - The desired state, and failures of versions, are stored before the agent acts on them. After
//     a restart of the agent or of the host, the same container runs again, and a failed version is
//     not retried.
//   - Only containers with this agent's label are changed.
package workload
