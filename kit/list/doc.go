// Package list answers requests for lists: a page at a time, forward from a key or down
// from a number, with the link to the next page.
//
// A list never counts and never skips. Each page begins after the last row of the one
// before, so that it costs the same wherever it is, and what is added or deleted
// meanwhile neither repeats nor hides a row.
package list
