// Package transfer moves large files between machines.
//
//	reader.go   Reader: bytes on their way, counted and bounded
//	fetch.go    Fetcher: downloads a file by HTTP, in as many attempts as it takes
//
// # Invariants
//
//   - A file is in its place only whole, with the SHA-256 that was asked for, and survives a loss
//     of power then.
//   - What was downloaded is not asked for again, unless the server has another file by now.
//   - However much a server sends, no more than the limit is stored.
//
// It imports durable and webhook.
package transfer
