// Package wire is the protocol between the daemon and the agent in a guest, over any
// stream of bytes: a virtio-serial port, vsock, a Unix socket.
//
// # Session
//
// A virtio-serial port has no connections that a guest could trust: what a daemon wrote
// before it died lies in the stream before what the next one writes. So the host begins
// a session with a preamble, 8 bytes of Magic and 8 random bytes. The agent answers with
// Magic, the same random bytes and a hello frame. Both discard what comes before: the
// agent everything up to Magic, the host up to MaxStale bytes until the answer to its own
// preamble.
//
// Magic begins with the byte 0xFF, which occurs in no frame and nowhere else in a preamble: JSON
// is UTF-8, a frame whose length would contain the byte is padded with spaces after its JSON, and
// the random bytes are below 0x80.
// Wherever an agent meets it, in the middle of a frame too, the session is over and
// another may begin there. It is over also at the end of the stream and at a malformed
// frame; then what the agent runs for it is killed, except for detached processes, and
// frozen file systems are thawed. An agent that receives a malformed frame answers
// with an error for call 0; otherwise the host would keep waiting.
//
// # Frames
//
// A frame is a length of 4 bytes, big-endian, and as many bytes of JSON, at most MaxFrame:
// the type Frame. The first frame of the agent is the hello: id 0, op "hello", body Hello.
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
// The host chooses the id of a call, which no other open call has. The secret is in the
// frame that opens a call; what follows is bound to the call, which exists in this session
// only. Result or error is the last frame of a call, cancelled or not. The host sends
// follow-ups until it has read that frame, so an agent ignores those of unknown calls; a
// host takes a frame of an unknown call for a violation.
//
// # Flow
//
// Calls share the stream. Chunks hold at most MaxChunk bytes, and those who wait to send
// take turns. For each call and direction at most Window bytes are on their way: the
// receiver gives credit for what it consumed. So a reader never waits for anybody: a
// caller who does not read, or a process that does not, holds up only itself, and both
// sides hold at most Window bytes a call.
package wire
