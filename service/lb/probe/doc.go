// Package probe checks the health of backends by TCP connections or HTTP requests, and reports
// changes.
//
// # States
//
//	unknown ── first result ──► healthy or unhealthy
//	healthy ── Fall failures in a row ──► unhealthy
//	unhealthy ── Rise successes in a row ──► healthy
//
// A check that starts with a known state (Check.Initial, as after a reload) needs Rise or Fall
// consecutive results like any other.
//
// # Invariants
//
//   - A check has at most one probe in flight. Probes start every Interval, plus or minus a tenth,
//     or when the previous one has ended if that is later.
//   - All state belongs to the goroutine of Run. An idle check takes a place in a heap, but neither
//     a goroutine nor a timer.
//   - At most 4096 probes are in flight. Backends whose last probe timed out share half of these
//     places, so that many dead backends, each of which takes a place for a whole Timeout, cannot
//     delay the probes of others. Probes without a place wait in a queue: if there are more dead
//     backends than places, these backends are probed less often than every Interval.
//   - Connections are closed with a reset, so that neither side keeps a socket in TIME_WAIT.
package probe
