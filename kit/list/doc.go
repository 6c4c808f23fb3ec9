// Package list serves paginated lists: forward from a key or down from a number, with a link to the
// next page.
//
// A list is never counted and never uses an offset. Each page begins after the last row of the
// previous one, so every page costs the same, and rows added or deleted between requests neither
// repeat nor hide others.
package list
