// Package restsocket runs the programs that hold one VM each and are told what to do by
// REST over a Unix socket: what Firecracker and Cloud Hypervisor have in common.
//
//	process.go   launching such a program, finding it again, and noticing its end
//	client.go    calls to its API
//	dial.go      its sockets, and connections to the guest through its hybrid vsock
//	log.go       what it says, through a named pipe
//	sweep.go     ending what was launched and not noted
//	host.go      what the host has, and what a process uses of it
//
// # Folders
//
// The VM's folder has process.json (package process). The run folder, the only one that the
// program can write to, has its sockets and the named pipe that it logs to. It lies in the
// VM's folder, or in that of a jail. The program is told these paths relative to its working
// folder and the daemon reaches them by a descriptor, so that they are short enough for
// sockets wherever the data are.
//
// # Invariants
//
//   - The program may have been taken over by its guest. A socket is spoken to only if the
//     VM's own process listens on it, an answer is cut at maxAnswer, and a text of the
//     program's is cut and made printable before it is in an error.
//   - Nothing that the program says or leaves unsaid outlives the context of a call.
//   - What it logs fills no disk: a pipe keeps 64 KiB while no daemon reads.
//   - Launch leaves no process, socket or record when it fails.
package restsocket
