package configfile

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// setScalar parses a single value and stores it in v. tag is its YAML type, empty for a default.
// The errors complete a sentence that starts with the path.
func setScalar(v reflect.Value, text, tag string) error {
	parsed, err := parse(v.Type(), text, tag)
	if err != nil {
		return err
	}
	v.Set(reflect.ValueOf(parsed).Convert(v.Type()))
	return nil
}

func parse(t reflect.Type, text, tag string) (any, error) {
	switch t {
	case reflect.TypeFor[netip.Addr]():
		return parseAddress(text)
	case reflect.TypeFor[datapath.Protocol]():
		return datapath.ParseProtocol(text)
	case reflect.TypeFor[datapath.Mode]():
		return datapath.ParseMode(text)
	case reflect.TypeFor[datapath.MAC]():
		return parseMAC(text)
	case reflect.TypeFor[probe.StatusRange]():
		return probe.ParseStatusRange(text)
	case reflect.TypeFor[PortRange]():
		return parsePortRange(text)
	case reflect.TypeFor[Community]():
		return parseCommunity(text)
	case reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		if err != nil {
			return d, fmt.Errorf("must be a duration, as in 500ms or 2s, not %s", quoted(text))
		}
		return d, nil
	case reflect.TypeFor[XDPMode]():
		return oneOf(text, XDPGeneric, XDPNative, XDPAuto)
	case reflect.TypeFor[Affinity]():
		if text == "" {
			return NoAffinity, nil
		}
		return oneOf(text, ClientIPAffinity, NoAffinity)
	case reflect.TypeFor[Secret]():
		if text == "" { // an empty password would mean no password
			return Secret(""), errors.New("must not be empty; omit it to use no password")
		}
		return Secret(text), nil
	case reflect.TypeFor[CheckType]():
		return oneOf(text, CheckTCP, CheckHTTP, CheckHTTPS, CheckNone)
	}
	switch t.Kind() {
	case reflect.String:
		return text, nil
	case reflect.Bool:
		if text != "true" && text != "false" {
			return false, fmt.Errorf("must be true or false, not %s", quoted(text))
		}
		return text == "true", nil
	case reflect.Int:
		n, err := parseInt(text, tag, 31)
		return int(n), err
	case reflect.Uint16:
		n, err := parseInt(text, tag, 16)
		return uint16(n), err //nolint:gosec // it has 16 bits
	case reflect.Uint32:
		n, err := parseInt(text, tag, 32)
		return uint32(n), err //nolint:gosec // it has 32 bits
	}
	panic(fmt.Sprintf("configfile: a %s cannot be read", t)) // a bug in the program
}

// parseInt parses a whole number that is not negative. It accepts numbers in quotes, since programs
// that generate the file may quote them.
func parseInt(text, tag string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, bits)
	switch {
	case tag == "!!float", tag == "!!bool", errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("must be a whole number, not %s", quoted(text))
	case err != nil:
		return 0, fmt.Errorf("must be at most %d, not %s", uint64(1)<<bits-1, quoted(text))
	}
	return n, nil
}

func oneOf[T ~string](text string, words ...T) (T, error) {
	names := make([]string, len(words))
	for i, w := range words {
		if names[i] = string(w); names[i] == text {
			return w, nil
		}
	}
	return "", fmt.Errorf("must be %s, not %s", strings.Join(names, ", "), quoted(text))
}

// parseAddress parses an address without a zone. IPv4-mapped addresses become IPv4 addresses.
func parseAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return a, fmt.Errorf("must be an IP address, not %s", quoted(text))
	case a.Zone() != "":
		return a, fmt.Errorf("must have no zone (%%%s)", a.Zone())
	}
	return a.Unmap(), nil
}

func parseMAC(text string) (datapath.MAC, error) {
	hw, err := net.ParseMAC(text)
	var mac datapath.MAC
	switch {
	case err != nil || len(hw) != len(mac):
		return mac, fmt.Errorf("must be an Ethernet address, as in 02:00:00:00:00:01, not %s", quoted(text))
	case hw[0]&1 != 0:
		return mac, errors.New("must be the address of one machine, not a group's")
	}
	copy(mac[:], hw)
	if mac.IsZero() {
		return mac, errors.New("must not be all zero")
	}
	return mac, nil
}

// inBounds checks a value against its min and max tags.
func inBounds(v reflect.Value, tag reflect.StructTag) error {
	lowest, highest := tag.Get("min"), tag.Get("max")
	if lowest == "" && highest == "" {
		return nil
	}
	number := func(v reflect.Value) int64 {
		if v.CanUint() {
			return int64(v.Uint()) //nolint:gosec // it has at most 32 bits
		}
		return v.Int()
	}
	bound := func(text string) int64 {
		b := reflect.New(v.Type()).Elem()
		if err := setScalar(b, text, ""); err != nil {
			panic(fmt.Sprintf("configfile: the bound %s %v", text, err)) // a bug in the program
		}
		return number(b)
	}
	n := number(v)
	if lowest != "" && n < bound(lowest) {
		return fmt.Errorf("must be at least %s, not %v", lowest, v)
	}
	if highest != "" && n > bound(highest) {
		return fmt.Errorf("must be at most %s, not %v", highest, v)
	}
	return nil
}
