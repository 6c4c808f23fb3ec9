// Package sandbox runs VMs as gVisor sandboxes: a kernel in a user-space process that serves the
// programs of a root file system in a folder. A sandbox starts in a tenth of a second and needs
// neither a disk image nor hardware virtualization.
//
//	backend.go    the host's capabilities, checks of requests, Start, Find, Clean, Restore
//	config.go     the OCI configuration derived from a Spec
//	runsc.go      runs runsc and reports its errors
//	instance.go   a running sandbox: pause, power down, kill, checkpoint, its end
//	channel.go    the agent and the console, which are processes in the sandbox
//	metrics.go    resource usage
//	sweep.go      kills all processes of a sandbox, whatever its state
//
// # The folder of a VM
//
//	secret          of the guest agent, which is given it to read; without it there is none.
//	                Write a new one into the same file: another would not be seen by the guest
//	process.json    which process is the sandbox (package process)
//	runsc/          everything of runsc's: its state, control socket, configuration, logs
//
// Each VM has its own state folder (runsc's --root). Its processes are therefore identified by
// their arguments, its state is removed with its folder, and sandboxes do not wait for each other's
// locks. Nothing is mounted on the host: the gofer, which opens files for the sandbox, has its own
// network namespace instead of one that runsc would keep mounted.
//
// # What a guest has
//
// The root file system is shared and never written. Changes go to an unlinked file in the VM's
// folder, which disappears with the sandbox and is limited by Options.WritableMiB. The first
// process is mainstay-guest as init, which keeps the agent running and reaps zombies. Dial starts a
// relay to the agent. Programs that the agent starts are therefore children of init and part of a
// checkpoint. gVisor kills processes started from outside, such as a console's shell, when it
// restores. There is no network but loopback.
//
// runsc enforces limits on memory and processors only by cgroups, which it is told not to use: the
// configuration contains the limits, but nothing enforces them, so a guest can use up the host's
// memory. Only its files in /tmp and /dev/shm are limited. Spec.UID is not applied: the sandbox
// runs as the daemon's user, in an empty root folder and its own namespaces, behind seccomp.
//
// # Invariants
//
//   - A guest's output and files cannot fill the host's disk beyond what it was granted: its first
//     process has no output, and what relays print beside their stream is cut.
//   - Whenever the daemon dies, Clean leaves no process, mount or file of the sandbox.
//   - The sandbox ends only with its first process or by Kill; a checkpoint leaves it running.
package sandbox
