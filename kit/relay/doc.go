// Package relay connects browsers and commands to byte streams, such as a VM's serial console or
// screen, over WebSockets.
//
//	ticket.go    Tickets: words that open one socket, for clients that cannot send credentials
//	upgrade.go   CheckUpgrade: checks that a request can become a socket
//	serve.go     Serve: copies between a socket and a stream
//	log.go       Log: one stream with many viewers, which keeps its last output
//
// # Invariants
//
//   - A ticket opens what it was issued for, once, and within TicketLife. Only its hash is stored.
//   - A request that cannot become a socket spends no ticket, and gets the service's error body.
//   - A viewer that does not keep up is disconnected. It never delays the stream or other viewers.
//   - Every byte written to a Log has an offset. A viewer that reconnects with its last offset
//     misses nothing that is still kept, and sees nothing twice.
//
// It imports auth, fault, httpserve and routine.
package relay
