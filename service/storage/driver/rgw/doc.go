// Package rgw makes buckets in Ceph's object gateway (RGW), and looks into buckets of any S3 service.
//
//	access.go     Access: where a gateway or a bucket is, and the keys; from a file
//	transport.go  what every request is held to
//	problem.go    what answers and failures mean
//	admin.go      the gateway's API for its users and buckets
//	bucket.go     S3: what a bucket is, and what it holds
//	gateway.go    Gateway: buckets that are made and removed
//	purge.go      how a bucket is emptied
//	single.go     Single: a bucket that exists, and is only read
//
// # How a bucket comes to be, and goes
//
// Each bucket has a user of its own, so that its keys open nothing else. A user is made with room for one bucket, which
// it makes itself. The quota is set, and then the user can make no more buckets, so that it cannot leave the quota
// behind.
//
//	(none) --user--> --bucket--> --versioning, quota--> --no more buckets--> made
//	made --new keys only--> --objects, uploads--> --bucket--> --user--> (none)
//
// Each step can be repeated, and finds what an earlier one has left.
//
// # Invariants
//
//   - Every request ends within 12 seconds, and its answer has a bounded size.
//   - Redirects are not followed: keys and signatures go to the endpoint only.
//   - No fault, and no cause of one, holds keys: URLs and texts of answers are left out.
//   - A bucket that belongs to another user is not touched.
//   - Objects are removed in small batches. What writes while a bucket is removed has lost its keys.
//
// It imports driver.
package rgw
