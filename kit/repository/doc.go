// Package repository keeps backups of disks, configurations and memory states in a store (package
// store): a folder or a bucket. It stores, lists, restores, verifies and prunes. It does not know
// where disks come from; the caller reads them and what changed of them.
//
// # Format
//
// A repository consists of objects that never change. PLACE stands for a tenant and does not tell
// its name. WRITER and BACKUP are random, and each is used once: the id of a backup is that of its
// writer. N counts, in 8 hex digits.
//
//	config                     format, id, block size, cipher, as JSON with a keyed hash
//	keys/ID                    the master key, wrapped by age, with a keyed hash
//	packs/PLACE/WRITER-N       blobs, and a trailer that lists them
//	index/PLACE/WRITER-N       copies of trailers, so that they are read with few requests
//	backups/PLACE/BACKUP       the manifest of a backup, or the mark that its writer was given up
//	removed/PLACE/BACKUP       says that the backup was deleted
//	protect/PLACE/BACKUP/ID    until when the backup cannot be deleted
//	leases/PLACE/WRITER-N      the writer is at work; N grows with each renewal
//	doomed/PLACE/ID-packs      packs that will be removed
//	doomed/PLACE/ID-leases     the writers that may rely on them
//
// An item of a backup (a disk, a stream) is cut into blocks of one size. A block's id is
// HMAC-SHA256 of its content. 4096 ids make a segment, which is a blob like a block, and the
// manifest lists the ids of the segments. The zero id stands for zeros. So every backup lists all of
// its blocks, no backup needs another, and an incremental one costs what changed: blocks, segments
// and a manifest of 32 KiB for each TiB of disk with blocks of 256 KiB.
//
// A pack is about 16 MiB:
//
//	"MSPACK1\n"
//	sealed blobs, without gaps
//	sealed trailer: of each blob kind (1), id (32), sealed length (4), length (4); zstd
//	length of the sealed trailer (4)
//
// A sealed blob holds one byte for its encoding (0 raw, 1 zstd) and the content. Numbers are
// big-endian. All other objects are JSON in zstd, sealed; an index is the packs' ids, sizes and
// trailers in zstd, sealed.
//
// # Keys
//
// The master key has 32 random bytes. HKDF-SHA256 derives from it, with the place, the keys of each
// tenant: one that seals and one for ids. To seal is XChaCha20-Poly1305 with a random nonce; its
// nonces of 24 bytes never repeat, however many blobs there are, where AES-GCM is limited to 2^32
// for a key. In a plain repository it is HMAC-SHA256 behind the readable content. The additional
// data of a blob are its kind, id and length, those of other objects their names, so that nothing
// can stand in for another thing.
//
// # A backup
//
//		        lease, catalog       packs, index         manifest
//		(none) ───────────────► open ─────────────► open ─────────► visible ──► deleted (removed/)
//		                          │                                                │
//		                          └─► aborted, or given up (void manifest)         └─► pruned
//
//	 1. The writer takes a lease, then reads which packs are doomed, then which packs there are.
//	 2. It puts packs, then an index, then the manifest. That is the commit.
//	 3. It removes its lease.
//
// A crash before the commit leaves garbage that Prune removes.
//
// # Prune
//
// Nothing is removed at once. A pack in which too much is dead is doomed: what lives in it is copied
// to another pack, and an object says that it will be removed. From then on nobody refers to it
// anew. Writers who began before that are waited for. After a grace period the sweep looks again at
// what lives, copies what has no copy outside of doomed packs, and removes the pack. See sweep.go
// for why that is right beside writers and beside other prunes.
//
// A writer that was killed leaves a lease that is not renewed. The prune that has waited for it for
// the whole grace period gives it up: it puts a void manifest under the name of the writer's own.
// Stores never overwrite, so either the backup is committed or the writer is given up, whatever
// clocks say. Clocks decide only how soon.
//
// # Invariants
//
//   - A visible backup can be restored: every block it lists is in a pack.
//   - Whatever is returned was authenticated. Lengths are checked before memory is taken.
//   - Once a pack is doomed it stays so until it is removed, and names are never used again.
//   - A protected backup is not deleted.
//   - Memory is bounded, however large the disk and the repository: about 64 MiB for a backup.
//
// # What it costs
//
// For each TiB of different blocks of 256 KiB: 4.2 million blobs, 172 MiB of index objects, which are
// read once and then kept in the cache folder, 192 MiB of temporary file while a backup runs, and 4
// MiB of memory. An incremental backup reads the segments of its parent: 128 MiB for each TiB that
// is not zeros. Listing takes one request for each backup.
//
// # Threats
//
// Who can read the store, without a key, learns the number of tenants, backups and writers, when they
// wrote and how much. In a plain repository, everything. Contents cannot be guessed by their ids,
// which are keyed. Tenants share no blocks, so no tenant learns from the size of a backup what
// another has.
//
// Who can write to the store can remove and add objects. Verify and restore find every changed,
// shortened, swapped or exchanged object. A removed pack is missed by the backups that need it, and a
// removed manifest by every later backup of the tenant, which lists it as seen. Not found out are: a
// newest backup that was removed and that no later one has seen; a store that was put back, as a
// whole, to how it was; a deleted backup that was put back together with the removal of its
// removed/ object; an index object, a lease or a doom that is gone, of which the first costs only
// time, and the others let a prune and a backup that run at that moment harm each other; protection
// that was removed, since protect/ objects can be. Against the first two, keep the ids elsewhere, as
// the services do in their databases, and pass them to Verify. Against deletion, use a store that
// keeps versions or locks objects.
//
// Who has the master key can do everything. Removing a wrapped key does not change the master key.
package repository
