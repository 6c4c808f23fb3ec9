// Package qemu runs virtual machines with QEMU.
//
//	machine.go   what a machine is made of, and the command line that follows from it
//	process.go   launching it, finding it again, and noticing its end
//
// # The folder of a machine
//
// Everything that a machine has beside its disks lies in one folder, which nobody else
// can enter: the sockets of its monitor (qmp.sock), serial console (serial.sock), screen
// (vnc.sock) and guest agent (agent.sock), what it printed (qemu.log), which process it is (process.json), and what it wrote to
// its serial console (serial.log). QEMU outlives the daemon, which finds it again there.
//
// # Invariants
//
//   - Args is a function of the machine: a machine that was started once is started
//     again in the same way, with its devices at the same places.
//   - Nothing of a request becomes an option: texts are values, in which commas are
//     doubled, as QEMU's manual wants it.
package qemu
