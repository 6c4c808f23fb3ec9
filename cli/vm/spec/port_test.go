package spec_test

import (
	"testing"

	"github.com/mainstay-infra/mainstay/cli/vm/spec"
)

func TestPortsAreReadAsPodmanWritesThem(t *testing.T) {
	t.Parallel()
	var p spec.Ports
	for _, text := range []string{"8080:80", "0.0.0.0:53:53/udp", "1:65535/tcp"} {
		if err := p.Set(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if got := p.String(); got != "8080:80/tcp,0.0.0.0:53:53/udp,1:65535/tcp" {
		t.Error(got)
	}
	for _, text := range []string{"", "80", "80:", ":80", "0:80", "80:65536", "x:80:80", "80:80/icmp", "80:80/", "1:2:3:4", "-1:80", "+1:80"} {
		var p spec.Ports
		if err := p.Set(text); err == nil {
			t.Errorf("%q is taken as %s", text, p.String())
		}
	}
}
