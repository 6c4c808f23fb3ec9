// Package wire is the protocol between the daemon and the agent in a guest. It runs over any byte
// stream: a virtio-serial port, vsock, a Unix socket.
//
// # Session
//
// A virtio-serial port has no connections: data that a daemon wrote before it died is in the stream
// before the data of the next daemon. Therefore the host starts a session with a preamble, 8 bytes
// of Magic and 8 random bytes. The agent answers with Magic, the same random bytes and a hello
// frame. Both discard what comes before: the agent everything up to Magic, the host up to MaxStale
// bytes until the response to its own preamble.
//
// Magic starts with the byte 0xFF, which occurs in no frame and nowhere else in a preamble: JSON is
// UTF-8, a frame whose length would contain the byte is padded with spaces after its JSON, and the
// random bytes are below 0x80. Wherever an agent reads this byte, even in the middle of a frame,
// the session is over and another may start there. It is also over at the end of the stream and at
// a malformed frame. Then everything that the agent runs for it is killed, except detached
// processes, and frozen file systems are thawed. An agent that receives a malformed frame responds
// with an error for call 0; otherwise the host would keep waiting.
//
// # Frames
//
// A frame is a length of 4 bytes, big-endian, followed by that many bytes of JSON (type Frame), at
// most MaxFrame. The first frame of the agent is the hello: id 0, op "hello", body Hello.
//
//	host                                       agent
//	{id, op: exec, secret, body}  ──────────►
//	{id, op: data, data}          ──────────►            input, or a file that is put
//	{id, op: end, body}           ──────────►            no more of it
//	                              ◄──────────  {id, op: head, body}    get-file only
//	                              ◄──────────  {id, op: data, stream, data}
//	{id, op: credit, credit}      ◄─────────►            so many bytes were consumed
//	{id, op: cancel}              ──────────►
//	                              ◄──────────  {id, op: result, body} or {id, op: error, body}
//
// The host chooses the id of a call, which must differ from those of all open calls. The secret is
// in the frame that opens a call. Later frames belong to the call, which exists only in this
// session. A result or error is the last frame of a call, cancelled or not. The host sends
// follow-ups until it has read that frame, so an agent ignores those of unknown calls. For a host,
// a frame of an unknown call is a violation.
//
// # Flow
//
// Calls share the stream. Chunks have at most MaxChunk bytes, and senders take turns. Per call and
// direction, at most Window bytes are in transit: the receiver sends credit for what it consumed.
// Therefore a reader never blocks: a caller or process that does not read blocks only itself, and
// both sides buffer at most Window bytes per call.
package wire
