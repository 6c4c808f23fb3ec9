// Package restsocket runs programs that hold one VM each and are controlled by REST over a Unix
// socket. It has what Firecracker and Cloud Hypervisor have in common.
//
//	process.go   launches such a program, finds it again, and notices its end
//	client.go    calls to its API
//	dial.go      its sockets, and connections to the guest through its hybrid vsock
//	log.go       its log output, through a named pipe
//	sweep.go     ends processes that were launched but not recorded
//	host.go      the host's capabilities, and a process's resource usage
//
// # Folders
//
// The VM's folder contains process.json (package process). The run folder is the only one that the
// program can write to. It contains its sockets and the named pipe for its log. It is in the VM's
// folder or in that of a jail. The program gets these paths relative to its working folder, and the
// daemon uses a descriptor of the folder, so they are short enough for sockets wherever the data
// is.
//
// # Invariants
//
//   - The program may have been taken over by its guest. A socket is used only if the VM's own
//     process listens on it, responses are cut at maxAnswer, and the program's texts are cut and
//     made printable before they are put in an error.
//   - No call waits for the program longer than its context.
//   - Its log cannot fill a disk: a pipe keeps 64 KiB while no daemon reads.
//   - If Launch fails, it leaves no process, socket or record.
package restsocket
