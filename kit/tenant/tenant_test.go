package tenant_test

import (
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/tenant"
)

func TestNamesOfTenants(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "acme", "Acme-2", "a.b_c-d", "0", strings.Repeat("x", 63)} {
		if err := tenant.CheckName("tenant", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "-a", "a-", ".", "..", "a/b", "a:b", "a b", "ä", "a\x00", "a\n", strings.Repeat("x", 64),
	} {
		if err := tenant.CheckName("tenant", name); !fault.Is(err, fault.Invalid) || fault.From(err).Field != "tenant" {
			t.Errorf("%q: %v", name, err)
		}
	}
}
