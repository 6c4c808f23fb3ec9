// Package twin keeps what is known of the site's devices: what the control plane
// wants them to be, what they reported, and what is to be told of them.
//
// Invariants:
//
//   - What a program here registers or patches is on disk before it is answered,
//     and is sent until the control plane has answered it.
//   - Patches of one device add up to one (compose), so that what waits is bounded
//     by the size of a twin, and sending it twice does no harm.
//   - FOLDER/<device>.json is the desired state as a file, replaced as a whole. A
//     device that the control plane knows no more has none.
package twin
