// Package exit says how the program ends: every error has an exit code that a
// script can act on, and may have a hint that tells a person what to do next.
package exit
