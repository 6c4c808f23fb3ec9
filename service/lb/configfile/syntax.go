package configfile

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"

	"github.com/mainstay-infra/mainstay/kit/document"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// syntax is that of the document.
var syntax = document.Syntax{
	MaxBytes: MaxFileSize, MaxValues: 1 << 19,
	MaxItems: MaxBackends, // no list may be longer than the number of all backends
	Needs:    "it needs at least the key interface",
	Scalars: map[reflect.Type]document.Scalar{
		reflect.TypeFor[datapath.Protocol](): scalar("word", datapath.ParseProtocol),
		reflect.TypeFor[datapath.Mode]():     scalar("word", datapath.ParseMode),
		reflect.TypeFor[datapath.MAC]():      scalar("Ethernet address", parseMAC),
		reflect.TypeFor[probe.StatusRange](): scalar("status or FIRST-LAST", probe.ParseStatusRange),
		reflect.TypeFor[PortRange]():         scalar("FIRST-LAST", parsePortRange),
		reflect.TypeFor[Community]():         scalar("word", parseCommunity),
		reflect.TypeFor[Affinity]():          scalar("text", parseAffinity),
		reflect.TypeFor[Secret]():            scalar("text", parseSecret),
	},
	Forms: map[string]document.Form{
		"ipv4": {Pattern: regexp.MustCompile(`^[^:]*$`), Says: "an IPv4 address"}, // also not ::ffff:10.0.0.1
	},
}

func scalar[T any](name string, parse func(text string) (T, error)) document.Scalar {
	return document.Scalar{Name: name, Parse: func(text string) (any, error) { return parse(text) }}
}

// Reference lists all keys, in the order of the document.
func Reference() []document.Row { return syntax.Reference(reflect.TypeFor[Config]()) }

// Markdown returns the reference as a Markdown table.
func Markdown() string { return syntax.Markdown(reflect.TypeFor[Config]()) }

func parseAffinity(text string) (Affinity, error) {
	switch a := Affinity(text); a {
	case "":
		return NoAffinity, nil
	case ClientIPAffinity, NoAffinity:
		return a, nil
	}
	return "", fmt.Errorf("must be %s, %s, not %s", ClientIPAffinity, NoAffinity, document.Quoted(text))
}

func parseSecret(text string) (Secret, error) {
	if text == "" { // an empty password would mean no password
		return "", errors.New("must not be empty; omit it to use no password")
	}
	return Secret(text), nil
}

func parseMAC(text string) (datapath.MAC, error) {
	hw, err := net.ParseMAC(text)
	var mac datapath.MAC
	switch {
	case err != nil || len(hw) != len(mac):
		return mac, fmt.Errorf("must be an Ethernet address, as in 02:00:00:00:00:01, not %s", document.Quoted(text))
	case hw[0]&1 != 0:
		return mac, errors.New("must be the address of one machine, not a group's")
	}
	copy(mac[:], hw)
	if mac.IsZero() {
		return mac, errors.New("must not be all zero")
	}
	return mac, nil
}
