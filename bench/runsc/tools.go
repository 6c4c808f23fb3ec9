//go:build tools

// Package runsc pins the version of gVisor's runsc for the tests and benchmarks of the sandbox
// backend. The product does not import it. It is a separate module to keep gVisor out of the
// product's dependencies. build.sh builds the program.
package runsc

import _ "gvisor.dev/gvisor/runsc"
