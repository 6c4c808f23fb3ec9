package qemu

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// extra are the options that a start may add, and the values that each takes. None names a file, opens a
// device of the host or changes how QEMU is managed.
var extra = map[string]*regexp.Regexp{
	"-rtc": regexp.MustCompile(
		`^(base=(utc|localtime|[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:]{8})?)|clock=(host|rt|vm)|driftfix=(none|slew)|(\b,\b))+$`,
	),
	"-boot": regexp.MustCompile(
		`^(menu=(on|off)|order=[a-dn]{1,4}|once=[a-dn]{1,4}|strict=(on|off)|reboot-timeout=[0-9]{1,5}|(\b,\b))+$`,
	),
	"-global": regexp.MustCompile(
		`^(ICH9-LPC\.disable_s[34]=[01]|(mc146818rtc|kvm-pit)\.lost_tick_policy=(delay|discard|slew))$`,
	),
	"-smbios": regexp.MustCompile(
		`^type=1(,(manufacturer|product|version|serial|sku|family)=[A-Za-z0-9 ._:/;-]{1,64})+$` +
			`|^type=11(,value=[A-Za-z0-9 ._:/;-]{1,128})+$`,
	),
}

const maxExtra = 256 // bytes of a value

// CheckExtra returns a fault that names the field unless every extra argument is on the list: options
// and their values by turns.
func CheckExtra(args []string) error {
	for i := 0; i < len(args); i += 2 {
		field := fmt.Sprintf("extra_args.%d", i)
		values, known := extra[args[i]]
		if !known {
			options := make([]string, 0, len(extra))
			for name := range extra {
				options = append(options, name)
			}
			slices.Sort(options)
			return fault.InvalidField(field, "must be one of %s", strings.Join(options, ", "))
		}
		if i+1 == len(args) {
			return fault.InvalidField(field, "is not followed by its value")
		}
		if v := args[i+1]; len(v) > maxExtra || !values.MatchString(v) {
			return fault.InvalidField(
				fmt.Sprintf("extra_args.%d", i+1), "is not among the values that are allowed for %s", args[i],
			)
		}
	}
	return nil
}
