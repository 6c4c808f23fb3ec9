//go:build linux

// Package netlabtest gives tests a separate network.
package netlabtest

import (
	"testing"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// New returns a lab that is closed when the test ends. Without the permission to create one, it
// ends the test like require.Missing.
func New(t testing.TB) *netlab.Lab {
	t.Helper()
	lab := netlab.New()
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := lab.Host("probe"); err != nil {
		require.Missing(t, "network namespaces cannot be made here, which takes root: %v", err)
	}
	return lab
}
