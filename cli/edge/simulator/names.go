package simulator

import (
	"fmt"

	"github.com/mainstay-infra/mainstay/api/edge"
)

// places are the locations of the simulated plants.
var places = []struct{ city, region string }{
	{"hamburg", "eu"}, {"lyon", "eu"}, {"porto", "eu"}, {"turin", "eu"}, {"gdansk", "eu"}, {"malmo", "eu"},
	{"detroit", "us"}, {"houston", "us"}, {"tacoma", "us"}, {"quebec", "us"},
	{"osaka", "apac"}, {"pune", "apac"}, {"penang", "apac"}, {"geelong", "apac"},
}

var machines = []struct{ noun, model string }{
	{
		"press",
		"HP-400",
	},
	{"oven", "TX-90"},
	{"robot", "KR-16"},
	{"pump", "P-100"},
	{"mill", "CM-7"},
	{"conveyor", "BC-2"},
}

// firmware is the devices' version before their first update.
const firmware = "1.0.0"

// siteName returns the name and the labels of the n-th site.
func siteName(n int) (string, edgeapi.Labels) {
	place := places[n%len(places)]
	return fmt.Sprintf(
			"%s-%d",
			place.city,
			n/len(places)+1,
		), edgeapi.Labels{
			"region":    place.region,
			"simulated": "true",
		}
}

// newDevice returns the n-th device of a site. Device ids are unique in the whole control plane,
// hence the prefix, which differs for each run.
func newDevice(prefix, site string, n int) device {
	machine := machines[n%len(machines)]
	return device{
		id:       fmt.Sprintf("%s-%s-%s-%d", prefix, site, machine.noun, n/len(machines)+1),
		model:    machine.model,
		firmware: firmware,
	}
}
