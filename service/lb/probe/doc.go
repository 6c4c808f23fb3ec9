// Package probe checks the health of backends: it opens TCP connections to them or
// asks them over HTTP, and says when one became healthy or stopped being so.
//
// # States
//
//	unknown ── first result ──► healthy or unhealthy
//	healthy ── Fall failures in a row ──► unhealthy
//	unhealthy ── Rise successes in a row ──► healthy
//
// A check that starts with a known state (Check.Initial, as after a reload) needs
// Rise or Fall results in a row like any other.
//
// # Invariants
//
//   - A check has at most one probe under way. Probes start every Interval, give
//     or take a tenth, or when the one before is over if that is later.
//   - All state belongs to the goroutine of Run; an idle check costs a place in a
//     heap and neither a goroutine nor a timer.
//   - At most 4096 probes are under way. Backends whose last probe was not answered
//     in time share half of them, so that many dead backends, each of which takes a
//     place for a whole Timeout, cannot keep the others from being probed. What
//     finds no place waits in line: with more dead backends than places, these are
//     probed less often than every Interval.
//   - Connections are closed with a reset, so that neither end keeps a socket in
//     TIME_WAIT for a connection that carried nothing worth waiting for.
package probe
