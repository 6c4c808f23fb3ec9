// Package db stores state: in SQLite by default, in PostgreSQL if a URL is configured. Both are
// used through the same calls and the same SQL.
//
// # The shared subset of SQL
//
// Statements are written by hand with ? placeholders and must run on both
// engines unchanged: TEXT, BIGINT, BOOLEAN and DOUBLE PRECISION columns,
// ON CONFLICT, RETURNING, TRUE and FALSE. Times are stored as Time (BIGINT, microseconds since
// 1970, UTC), JSON as TEXT. Where the engines must differ, for example in row locks, Tx has a
// method that returns the right clause (ForUpdate).
//
// # Invariants
//
//   - A write goes through Update, which runs one transaction. When it returns
//     nil, the change survives kill -9 and power loss: SQLite runs in WAL mode
//     with synchronous=FULL, PostgreSQL with its default synchronous_commit.
//   - SQLite has one writer and one process: Open takes an exclusive lock beside
//     the file, so no other process can change what a service caches.
//   - Reads (Get, Select on DB) see committed data only and never wait for the
//     writer.
//   - A write that the database refuses is a fault of kind StorageFailed, so callers see 507 and know
//     that nothing was written. If the database cannot be reached, it is one of kind Unavailable (503)
//     with the code CodeUnavailable; its message says so if the change may have been stored.
//   - When the disk of an SQLite file is full, deletions can be stored all the same, if the service keeps a reserve
//     (Config.Reserve, Low).
//
// Batcher lets concurrent callers share one commit, which makes durable writes cheap under load.
package db
