// Package relay connects browsers and commands to byte streams, such as a VM's serial console or
// screen, over WebSockets.
//
//	upgrade.go   CheckUpgrade: checks that a request can become a socket
//	serve.go     Serve: copies between a socket and a stream
//	log.go       Log: one stream with many viewers, which keeps its last output
//
// # Invariants
//
//   - A request that cannot become a socket gets the service's error body, so that its caller can
//     be told why.
//   - A viewer that does not keep up is disconnected. It never delays the stream or other viewers.
//   - Every byte written to a Log has an offset. A viewer that reconnects with its last offset
//     misses nothing that is still kept, and sees nothing twice.
//
// It imports auth, fault, httpserve and routine.
package relay
