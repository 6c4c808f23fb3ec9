package hypervisor_test

import (
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
)

func TestAHostAdvertisesNoAddressThatLeadsARemoteRegistryToItself(t *testing.T) {
	t.Parallel()
	doc, err := configfile.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	const far, near = "http://192.0.2.2:7070", "http://127.0.0.1:7071"
	for _, c := range []struct {
		registry, listen, advertise string
		refused                     bool
	}{
		{far, "127.0.0.1:7070", "", true},
		{far, "0.0.0.0:7070", "", true},
		{far, "[::]:7070", "", true},
		{far, ":7070", "", true},
		{far, "192.0.2.9:7070", "http://localhost:7070", true},
		{far, "0.0.0.0:7070", "http://[::1]:7070", true},
		{far, "192.0.2.9:7070", "", false},
		{far, "0.0.0.0:7070", "http://192.0.2.9:7070", false},
		{near, "127.0.0.1:7070", "", false},
		{near, "0.0.0.0:7070", "", false},
		{"", "0.0.0.0:7070", "", false},
	} {
		cfg := hypervisor.Config{
			Accel: "tcg", NodeName: "n", AccessLog: "off", Insecure: true,
			Registry: c.registry, Listen: c.listen, Advertise: c.advertise,
		}
		err := cfg.Validate(doc)
		if f := fault.From(err); (f != nil && f.Field == "advertise") != c.refused {
			t.Errorf("%+v: %v", c, err)
		} else if c.refused && !strings.Contains(f.Message, c.registry) {
			t.Errorf("%+v: the message does not name the registry: %v", c, err)
		}
	}
}
