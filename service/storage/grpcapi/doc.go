// Package grpcapi translates gRPC (api/proto/storage/v1) to the operations of the storage gateway's contract
// (api/storage), and nothing else.
//
//	server.go     Register; how a call is let in
//	storage.go    clusters, pools, volumes, snapshots, buckets
//	jobs.go       jobs, and following them
//	monitor.go    alerts, and what there is in all
//	translate.go  what operations answer, as messages
//
// # Invariants
//
//   - Each method is an operation of the contract, in another encoding. It takes the same role, is held against the
//     same schemas, and calls the same function. So no rule is written twice.
//
// It imports gate, and is given the operations.
package grpcapi
