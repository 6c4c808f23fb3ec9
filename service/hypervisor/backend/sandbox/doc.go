// Package sandbox runs VMs as gVisor sandboxes: a kernel in a process, which serves the
// programs of a root file system in a folder. It starts in a tenth of a second, and needs
// neither a disk image nor a processor that can virtualize.
//
//	backend.go    what the host can do, what requests may ask for, Start, Find, Clean, Restore
//	config.go     the OCI configuration that follows from a Spec
//	runsc.go      running runsc, and what it says when it fails
//	instance.go   a sandbox that runs: pause, power down, kill, checkpoint, its end
//	channel.go    the agent and the console, which are processes in the sandbox
//	metrics.go    what it uses
//	sweep.go      ending all processes of a sandbox, of whatever state it is in
//
// # The folder of a VM
//
//	secret          of the guest agent, which is given it to read; without it there is none.
//	                Write a new one into the same file: another would not be seen by the guest
//	process.json    which process is the sandbox (package process)
//	runsc/          everything of runsc's: its state, control socket, configuration, logs
//
// Each VM has a state folder (runsc's --root) of its own. So the processes of a sandbox are
// known by their arguments, its state is removed with its folder, and sandboxes do not wait
// for each other's locks. Nothing is mounted on the host: the gofer, which opens files for the
// sandbox, has a network namespace of its own instead of one that runsc would keep mounted.
//
// # What a guest has
//
// The root file system is shared and never written: changes go to a file without a name in
// the VM's folder, which is gone with the sandbox and bounded by Options.WritableMiB. The
// first process is mainstay-guest as an init, which keeps the agent running and reaps; Dial
// starts a relay to the agent. Programs that the agent started are below the init so, and part
// of a checkpoint, whereas gVisor ends what was started from outside, such as a console's
// shell, when it restores. There is no network but loopback.
//
// runsc enforces limits on memory and processors by cgroups only, which it is told to leave
// alone: the configuration states them, and nothing holds the guest to them, so that one can
// use up the host's memory. Only its files in /tmp and /dev/shm are bounded. Spec.UID is not
// applied: the sandbox runs as the daemon does, in an empty root folder and namespaces of its
// own, behind seccomp.
//
// # Invariants
//
//   - What a guest writes or prints fills no disk of the host's beyond what it was granted:
//     its first process has no output, and what relays say beside their stream is cut.
//   - Whenever the daemon dies, Clean leaves no process, mount or file of the sandbox.
//   - The sandbox ends only with its first process or by Kill; a checkpoint leaves it running.
package sandbox
