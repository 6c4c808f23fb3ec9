// Package jobs runs durable background work on the service's own database.
//
// A job is a row, enqueued in the transaction of the change that calls for it,
// so that neither exists without the other. A Runner in every replica claims
// jobs and runs the function registered for their kind.
//
// # States
//
//	            claim (attempt + 1)              returned nil
//	available ------------------------> running --------------> succeeded
//	 |     ^                             | | |
//	 |     |  failed, attempts are left  | | |  failed, attempts used up,
//	 |     |  (later, see below)         | | |  or Permanent
//	 |     +-----------------------------+ | +----------------> failed
//	 |     |  lease expired                |
//	 |     |  shutdown (attempt - 1)       |
//	 |     +-------------------------------+
//	 |                                     |
//	 | cancel                              | cancel requested, and then
//	 |                                     | anything but success
//	 +---------------> cancelled <---------+
//
// A retry waits between nothing and 1s after the first attempt, 2s after the
// second, and so on doubling up to 5 minutes ("full jitter").
//
// # Invariants
//
//   - A job runs at least once. It may run again when a worker dies, or cannot
//     reach the database, between doing the work and storing the end of it; so
//     the work must be idempotent.
//   - At most one worker holds a job's lease. The holder renews it every third of
//     its length and cancels the job's context a sixth before it runs out. A job
//     that heeds its context therefore never runs twice at once. Leases are written
//     and judged by the database's clock; the holder measures its own by the time
//     that passed, so the replicas' clocks may differ.
//   - The pair (worker, attempt) names one holding of a lease: only an orderly
//     hand-back lowers attempt again, and by then the run has returned. All writes
//     about a running job compare the pair, so a worker that lost its lease
//     changes nothing.
//   - In a queue with Config.PerGroup no group has more jobs running than that. Those who wait
//     get their turn by what their group has running, then in their order.
//   - A panic in a job is a failure like any other.
//   - A kind that no live Runner has registered stays available, which is what
//     lets versions overlap during an upgrade.
//
// # Limits
//
// Args are at most MaxArgs bytes of JSON, stored errors are cut to 2 KiB, and at
// most a thousand records are listed at once. Finished jobs stay until
// DeleteFinished removes them.
//
// Every is for work that needs no row: a loop in this process only.
package jobs
