//go:build linux

// Package netlabtest gives tests a network of their own.
package netlabtest

import (
	"testing"

	"github.com/mainstay-infra/mainstay/kit/netlab"
	"github.com/mainstay-infra/mainstay/kit/require"
)

// New is a lab that lasts as long as the test. Without the rights to make one, it
// ends the test as require.Missing does.
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
