// Package demo builds a small guest from the system's packages: Debian's cloud kernel, busybox, the
// modules that a virtual machine needs, and the guest agent. It boots in seconds without a disk. It
// is meant for a first look, tests and benchmarks, not as a system to work on.
//
// The kernel's package is downloaded once. If that fails, a kernel installed on the host is used,
// if it has the modules.
//
// The guest mounts what is needed, requests an address on each network device, starts the agent and
// runs a shell on its serial console, where it prints Ready.
package demo

// Ready is the line on the console after which the guest is usable.
const Ready = "mainstay demo guest: ready"
