// Package process tracks the processes that run VMs, which keep running when the daemon ends, and
// finds them again. A file in the VM's folder identifies the process by its PID, start time and
// boot.
//
// # Invariants
//
//   - A process is referred to by a file descriptor (pidfd), so another process that reuses its PID
//     is never watched or killed by mistake.
//   - The descriptor reports the end of any process, child or not, even before it is reaped.
//   - A damaged record is an error, not "no process": otherwise the VM might run twice.
package process
