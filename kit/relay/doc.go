// Package relay connects browsers and commands with byte streams, such as the serial console or
// the screen of a VM, by WebSockets.
//
//	ticket.go    Tickets: words that open one socket, where a client cannot send credentials
//	upgrade.go   CheckUpgrade: whether a request can become a socket
//	serve.go     Serve: copies between a socket and a stream
//	log.go       Log: one stream that many look at, with what it printed last
//
// # Invariants
//
//   - A ticket opens what it was issued for, once, and within TicketLife. Only its hash is held.
//   - A request that cannot become a socket spends no ticket, and gets the service's error body.
//   - A viewer that does not keep up is let go. It never holds up the stream or other viewers.
//   - Every byte that a Log took has an offset. A viewer that comes back with the offset it has
//     reached misses nothing that is still kept, and sees nothing twice.
//
// It imports auth, fault, httpserve and routine.
package relay
