// Package exit defines how the program ends: every error has an exit code for scripts, and may have
// a hint that tells people what to do next.
package exit
