// Package simulator plays a fleet of edge sites against a running control plane:
// real enrollments with keys and certificates, heartbeats, events, twins,
// deployments and updates, all over HTTP with each site's own token.
//
// A site is a small value that acts when it is due (schedule.go). No site has a
// goroutine of its own: a few workers take the sites whose time has come, so ten
// thousand sites take about as much memory as they have devices and events under
// way, and what is under way is bounded.
//
//	fleet.go     the workers, and what they count
//	site.go      one site: enroll, beat, pull, send
//	device.go    one device: its twin and its updates; plan.go: how an update goes
//	calls.go     requests with a site's token
//	chaos.go     outages, lost answers, devices that hang
//	stats.go     counts and latencies
//
// # Invariants
//
//   - An event keeps its id until the server has acknowledged it, whatever happens
//     in between; the server must call a second copy a duplicate.
//   - A site that gets no answer waits with full jitter before it tries again, so
//     a fleet does not stampede a server that comes back.
package simulator
