//go:build tools

// Package runsc pins gVisor's runsc, which the tests and benchmarks of the
// sandbox backend run, at one version. Nothing of the product imports it: it is
// a module of its own so that the product's list of dependencies stays what the
// product ships. build.sh makes the program of it.
package runsc

import _ "gvisor.dev/gvisor/runsc"
