package qmp

// What tests of bounds need to know.
const (
	MaxEvent = maxEvent
	Queued   = queued
)
