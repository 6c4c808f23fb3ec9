// Package jobs runs durable background work on the service's own database.
//
// A job is a row that is enqueued in the transaction of the change that requires it, so that
// neither exists without the other. A Runner in every replica claims jobs and runs the function
// registered for their kind.
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
// A retry waits a random time of up to 1s after the first attempt, up to 2s after the second, and
// so on, doubling up to 5 minutes ("full jitter").
//
// # Invariants
//
//   - A job runs at least once. It may run again if a worker dies, or cannot
//     reach the database, between doing the work and storing its end, so the
//     work must be idempotent.
//   - At most one worker holds a job's lease. The holder renews it every third of
//     its length and cancels the job's context a sixth before it expires. A job
//     that respects its context therefore never runs twice at the same time.
//     Leases are written and compared by the database's clock; the holder measures
//     only elapsed time, so the replicas' clocks may differ.
//   - The pair (worker, attempt) identifies one holding of a lease: only an orderly
//     hand-back lowers attempt again, and by then the run has returned. All writes
//     about a running job compare the pair, so a worker that lost its lease
//     changes nothing.
//   - In a queue with Config.PerGroup no group has more running jobs than that.
//     Pending jobs are ordered by how many jobs of their group are running, then
//     by their usual order.
//   - A panic in a job counts as a failure.
//   - A job whose kind no live Runner has registered stays available, so versions
//     can overlap during an upgrade.
//
// # Limits
//
// Args are at most MaxArgs bytes of JSON, stored errors are truncated to 2 KiB, and at most a
// thousand records are listed at once. Finished jobs stay until DeleteFinished removes them.
//
// Every runs periodic work that needs no row, in this process only.
package jobs
