package configfile_test

import (
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

// Whatever is accepted can be given to the kernel, and whatever is refused is
// refused with a reason.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{complete, vip("ports: [80, 81], backends: [{address: 10.0.0.1}]"), vip("portRange: 1-65535"), backend("weight: 7"),
		bgp("password: x"), "a: &a [*a]", "interface: eth0\nvips: &v [*v]", "interface: eth0\nvips: [&v {backends: [*v]}]", "? [a]\n: b", "<<: *x", "interface: !!binary x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := configfile.Parse(raw)
		if err != nil {
			if c != nil || !fault.Is(err, fault.Invalid) || strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("%v %v", c, err)
			}
			return
		}
		names := map[string]bool{}
		pairs := 0
		for _, s := range c.Expand() {
			if names[s.String()] {
				t.Fatalf("%s twice", s)
			}
			names[s.String()] = true
			if !s.Address.IsValid() || s.Address.Is4In6() || s.Address.Zone() != "" || s.Port == 0 ||
				s.LastPort < s.Port ||
				s.SNAT && s.Mode != datapath.NAT {
				t.Fatalf("%+v", s)
			}
			seen := map[datapath.BackendKey]bool{}
			for _, e := range s.Endpoints {
				pairs++
				if seen[e.BackendKey] || !e.Address.IsValid() || e.Address.Is4In6() || e.Weight < 1 ||
					e.Weight > datapath.MaxWeight ||
					(e.Port == 0) != s.IsRange() {
					t.Fatalf("%+v", e)
				}
				seen[e.BackendKey] = true
				if s.Check.Type != configfile.CheckNone {
					check := s.Check.Probe()
					check.Address = e.Probe
					if err := check.Validate(); err != nil {
						t.Fatalf("%+v: %v", e, err)
					}
				}
			}
		}
		if len(names) > configfile.MaxVIPs || pairs > configfile.MaxBackends {
			t.Fatalf("%d VIPs, %d backends", len(names), pairs)
		}
	})
}
