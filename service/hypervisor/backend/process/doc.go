// Package process holds the processes that run VMs, which outlive the daemon, and finds
// them again: a file in the VM's folder says which process it was, by its number, when it
// was started and since which boot.
//
// # Invariants
//
//   - A process is held by a file descriptor, so that another process that gets its number
//     later is never taken for it, watched in its place or killed.
//   - Its end is noticed by the descriptor, whoever's child it is, and before anybody has
//     taken note of its exit.
//   - A damaged record is an error, not "no process": the VM might run twice.
package process
