// Package require decides what a test does if a real engine is missing: skip with the reason, or
// fail where all engines are expected.
//
// MAINSTAY_REQUIRE=all, as in CI, turns every such skip into a failure.
package require

import (
	"os"
	"os/exec"
	"testing"
)

// Missing skips t with the reason, or fails it under MAINSTAY_REQUIRE=all.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("MAINSTAY_REQUIRE") == "all" {
		t.Fatalf("required here (MAINSTAY_REQUIRE=all): "+format, args...)
	}
	t.Skipf(format, args...)
}

// Program returns the path of a program, or ends the test like Missing.
func Program(t testing.TB, name, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "%s is not installed (apt-get install %s)", name, debianPackage)
	}
	return path
}
