// Package simulator simulates a fleet of edge sites against a running control plane: real
// enrollments with keys and certificates, heartbeats, events, twins, deployments and updates, all
// over HTTP with each site's own token.
//
// A site is a small value that acts when it is due (schedule.go). Sites have no goroutines of their
// own: a few workers process the sites that are due, so ten thousand sites take about as much
// memory as their devices and pending events, which are limited.
//
//	fleet.go     the workers and their counters
//	site.go      one site: enroll, heartbeat, pull, send
//	device.go    one device: its twin and its updates; plan.go: how an update goes
//	calls.go     requests with a site's token
//	chaos.go     outages, lost answers, devices that hang
//	stats.go     counts and latencies
//
// # Invariants
//
//   - An event keeps its id until the server has acknowledged it, whatever happens
//     in between; the server must recognise a second copy as a duplicate.
//   - A site without a response waits with full jitter before it retries, so that a
//     fleet does not overload a server that has just recovered.
package simulator
