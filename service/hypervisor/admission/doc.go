// Package admission decides whether a VM may be made: limits of a single VM, of what a
// tenant has in all, which backends run it, and from where its image may come.
//
// # Invariants
//
//   - Every refusal names the limit, as it is called in the configuration.
//   - Check is a function of its arguments. Whoever calls it holds the lock under which
//     usage is counted until the VM counts too, or two VMs would pass a cap together.
//   - An image's path is followed once, by the kernel, below an allowed folder: neither
//     .. nor a symbolic link, not even one that is changed meanwhile, leads out of it.
//   - Nothing of the daemon's own folders is handed out for an image, to nobody and by no
//     path: what was opened is asked where it is, not the path by which it was named.
package admission
