// Package accel detects which accelerator QEMU can really use on this host: KVM or TCG, QEMU's own
// translator, which always works but is slow.
//
// That /dev/kvm opens proves nothing. On hosts that are virtual machines themselves, KVM may halt
// every guest, or emulate it one instruction at a time, which is slower than TCG. Therefore a tiny
// guest is booted once under KVM. It must enter 64-bit mode and count far enough within a time
// limit.
//
// Invariants:
//
//   - KVM is returned only if the probe guest finished under it.
//   - No process is left behind, whatever the probe does.
//   - A result that took a boot is cached for this boot of the host, this kernel, this QEMU and
//     this probe. What is known immediately, such as a missing or inaccessible device, is checked
//     every time, since it can be fixed at any time. Delete the cache file to check everything
//     again.
//   - A cache file without such a result is ignored.
package accel
