// Package transfer moves large files between machines.
//
//	reader.go   Reader: bytes on their way, counted and bounded
//	reader.go   Reader: counts and limits bytes in transit
//	fetch.go    Fetcher: downloads a file over HTTP, in several attempts if necessary
//
// # Invariants
//
//   - A file is put in place only when it is complete and has the expected SHA-256. It then
//     survives power loss.
//   - Downloaded parts are not requested again, unless the server's file has changed.
//   - However much a server sends, no more than the limit is stored.
//
// It imports durable and webhook.
package transfer
