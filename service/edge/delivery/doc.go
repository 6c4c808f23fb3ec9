// Package delivery delivers accepted events to the HTTP targets of routes.
//
// # The life of a delivery
//
//	          ingest
//	            │
//	            ▼    2xx
//	┌───────► pending ─────────────► (gone: delivered)
//	│           │  │
//	│   retry   │  └── retries used up ──────────► dead letter "exhausted"
//	└───────────┘  ├── other 4xx, refused target ─► dead letter "permanent"
//	               ├── 410: and the route is off ─► dead letter "permanent"
//	               └── route off or removed ──────► dead letter "route_disabled", "route_deleted"
//
//	dead letter ── replay ──► pending (its dead letter stays until it is delivered)
//
// # Invariants
//
//   - A delivery row is written in the transaction that accepts its event, and
//     deleted only in the transaction that records its outcome. So every accepted
//     event is delivered at least once or becomes a dead letter.
//   - A (route, site) pair is a lane: one request at a time, in the order of
//     acceptance. Only retries leave the order.
//   - Each route has its own worker, its own limit on concurrent requests and its
//     own circuit breaker, so a dead target delays no other route.
//   - The breaker saves requests. It does not keep events waiting longer than
//     their retries could have taken (horizon).
//   - Lanes are distributed over shards, and at most one replica owns a shard at
//     any time (shards.go). Without a crash nothing is sent twice.
//   - An outcome that cannot be stored (disk full) is kept in memory and stored
//     later. The lane continues, and the delivery is not sent again.
package delivery
