// Package admission decides whether a VM may be created. It checks the limits of a single VM and of
// its tenant, the allowed backends, and the source of its image.
//
// # Invariants
//
//   - Every refusal names the limit as it is called in the configuration.
//   - Check is a pure function. Its caller must hold the lock under which usage is counted until
//     the new VM counts, too, or two VMs could pass a cap together.
//   - The kernel resolves an image's path once, below an allowed folder: neither .. nor a symbolic
//     link can lead out of it, even if changed concurrently.
//   - Nothing in the daemon's own folders can be used as an image, by anyone or by any path: the
//     check uses the location of the opened file, not the path by which it was named.
package admission
