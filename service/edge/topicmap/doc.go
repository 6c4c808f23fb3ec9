// Package topicmap knows which topics occur where among the events, so that a search for a topic
// reads only the events that may match.
//
// An index on the topic would cost each event another page of the disk, because consecutive events
// have different topics. The map costs next to nothing: the events are divided into blocks of
// consecutive numbers, and the map has a row for each block and topic that occurs in it. The row
// lists the numbers of the events as long as there are few of them (Sparse). After that it says only
// that the topic is there, is not written again, and a search reads the block.
//
// # Invariants
//
//   - Add runs in the transaction that stores the events. So the map never lacks a topic of the
//     blocks from Described on.
//   - The map may name events that are gone: those that were deleted. Readers read the events
//     themselves.
//   - A block has rows for at most MaxTopics topics (a few more with several replicas), and then one
//     more for each org. That one has no topic, and means that any topic may be there.
//   - A version without the map must not store events beside one with it.
//   - What Map remembers only spares it writes; the database decides.
package topicmap
