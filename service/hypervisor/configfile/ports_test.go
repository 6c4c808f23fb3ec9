package configfile_test

import (
	"testing"

	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
)

func TestRangesOfPortsAreRead(t *testing.T) {
	t.Parallel()
	if r, err := configfile.ParsePortRange("0.0.0.0:1-65535"); err != nil || r.From != 1 || r.To != 65535 || r.Address.String() != "0.0.0.0" {
		t.Errorf("%+v %v", r, err)
	}
	for _, text := range []string{"", "1-2", "host:1-2", "::1:1-2", "1.1.1.1:0-2", "1.1.1.1:2-1", "1.1.1.1:1-65536", "1.1.1.1:1", "1.1.1.1:1-2-3"} {
		if r, err := configfile.ParsePortRange(text); err == nil {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
}
