// Package backup keeps copies of volumes in buckets, and makes volumes of them.
//
//	backup.go    Manager: requests, jobs, and what is done at regular times
//	key.go       keys of repositories
//	open.go      opens buckets and the repositories in them
//	make.go      makes a backup
//	verify.go    compares a backup with a snapshot, or reads it back
//	restore.go   makes a volume of a backup
//	import.go    takes in the backups of a bucket that are not known
//	remove.go    removes backups, and snapshots that are not needed any more
//	manifest.go  the objects that describe backups
//
// # In a bucket
//
//	mainstay/backups/VOLUME/BACKUP.json   what the backup is, and of what; the only object of the mode manifest
//	mainstay/plain/                       a repository (kit/repository) with the data of backups that are not encrypted
//	mainstay/age1.../                     one whose data is encrypted with the key of this public half (age)
//
// A repository needs nothing but the bucket and its key. One that is not encrypted is opened by a passphrase that is
// in this program (plainPassphrase): its content can be read by whoever reads the bucket.
//
// # How a backup comes to be
//
//		pending ──► uploading ──► verifying ──► completed
//		   └────────────┴─────────────┴── failed
//
//	 1. record.CreateBackup stores it, with its job.
//	 2. The job takes a snapshot, under the backup's own name. If the storage tells what has changed since the snapshot
//	    of the backup before, only that is read; all else is that of the backup before. The repository stores each
//	    content once.
//	 3. What was read is compared with what the repository returns (the state verifying).
//	 4. The manifest is put, and the backup is complete. Its snapshot stays until the next backup is complete, if the
//	    storage can tell what has changed since.
//
// # Invariants
//
//   - A backup that is complete can be restored, whatever happens to the others. Each lists all of its content.
//   - A job that is repeated after a crash finds its snapshot and what it has committed.
//   - A backup is compared only with one of the same volume in the same bucket with the same key, whose snapshot the
//     storage still has; otherwise it reads everything, and says why.
//   - Keys of buckets and repositories are in memory only. They are in no fault, log or manifest.
//   - What manifests and repositories say is checked before it is believed: others may write to a bucket.
//
// It imports backend, bucket, caller, driver, job, record and state.
package backup
