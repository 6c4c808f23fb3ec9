// Package series stores counts and measurements over time, and returns the history for plots.
//
// A Window is a time span divided into steps of a round length, so that it has no more points than
// requested. A Memory keeps the last points of a limited number of series, for services without a
// database. A Table adds up counts per minute in one of the service's own tables.
//
// # Invariants
//
//   - Points begin at multiples of their step since 1970 in UTC. Two results with the same step
//     therefore agree on the points that both have.
//   - A step without measurements has no point: unknown is not zero. Callers who know that a
//     missing count means that nothing happened add zeros (Window.Fill).
//   - A counter that decreased has restarted at zero (Increase).
package series
