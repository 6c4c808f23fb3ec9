// Package series keeps what was counted and measured over time, and answers with the history that
// a plot shows.
//
// A Window is the span of an answer, divided into steps of a round length, so that it has no more
// points than were asked for. A Memory keeps the last points of a bounded number of series, for
// services without a database. A Table adds up counts by minute in a table of the service's own.
//
// # Invariants
//
//   - Points begin at multiples of their step since 1970 in UTC. Two answers with the same step
//     therefore agree on the points that both have.
//   - A step in which nothing was measured has no point: what is not known is not zero. Whoever
//     knows that a missing count means that nothing happened asks for zeros (Window.Fill).
//   - A counter that went back has begun again at zero (Increase).
package series
