// Package twin stores the site's devices: their desired state, their reported state, and the
// changes that the control plane has not received yet.
//
// Invariants:
//
//   - When a local program's registration or patch is acknowledged, it is on disk. It is sent until
//     the control plane has responded.
//   - Waiting patches of a device are combined into one (compose). So the size of what waits is
//     limited by the size of a twin, and sending it twice does no harm.
//   - FOLDER/<device>.json holds the desired state and is replaced as a whole. It is deleted when
//     the control plane no longer knows the device.
package twin
