package document

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Form is what a text must look like.
type Form struct {
	Pattern *regexp.Regexp
	Max     int // bytes; 0: as many as the pattern takes
	// Says completes "must be ..., not ...": for example "a name of lower-case letters".
	Says string
}

// Match reports whether a text has the form.
func (f Form) Match(text string) bool {
	return f.Pattern.MatchString(text) && (f.Max == 0 || len(text) <= f.Max)
}

// setScalar parses a single value and stores it in v. tag is its YAML type, empty for a default.
// The errors complete a sentence that starts with the path.
func (s *Syntax) setScalar(v reflect.Value, text, tag string) error {
	parsed, err := s.parse(v.Type(), text, tag)
	if err != nil {
		return err
	}
	v.Set(reflect.ValueOf(parsed).Convert(v.Type()))
	return nil
}

func (s *Syntax) parse(t reflect.Type, text, tag string) (any, error) {
	if own, ok := s.Scalars[t]; ok {
		return own.Parse(text)
	}
	switch t {
	case reflect.TypeFor[netip.Addr]():
		return parseAddress(text)
	case reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		if err != nil {
			return d, fmt.Errorf("must be a duration, as in 500ms or 2s, not %s", Quoted(text))
		}
		return d, nil
	}
	switch t.Kind() {
	case reflect.String:
		return text, nil
	case reflect.Bool:
		if text != "true" && text != "false" {
			return false, fmt.Errorf("must be true or false, not %s", Quoted(text))
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
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f-f != 0 { // not a number, or infinite
			return 0.0, fmt.Errorf("must be a number, not %s", Quoted(text))
		}
		return f, nil
	}
	panic(fmt.Sprintf("document: a %s cannot be read", t)) // a bug in the program
}

// parseInt parses a whole number that is not negative. It accepts numbers in quotes, since programs
// that generate the file may quote them.
func parseInt(text, tag string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, bits)
	switch {
	case tag == "!!float", tag == "!!bool", errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("must be a whole number, not %s", Quoted(text))
	case err != nil:
		return 0, fmt.Errorf("must be at most %d, not %s", uint64(1)<<bits-1, Quoted(text))
	}
	return n, nil
}

// parseAddress parses an address without a zone. IPv4-mapped addresses become IPv4 addresses.
func parseAddress(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return a, fmt.Errorf("must be an IP address, not %s", Quoted(text))
	case a.Zone() != "":
		return a, fmt.Errorf("must have no zone (%%%s)", a.Zone())
	}
	return a.Unmap(), nil
}

// inBounds checks a value against its min and max tags.
func (s *Syntax) inBounds(v reflect.Value, tag reflect.StructTag) error {
	for name, beyond := range map[string]func(n, bound float64) bool{
		"min": func(n, bound float64) bool { return n < bound },
		"max": func(n, bound float64) bool { return n > bound },
	} {
		text := tag.Get(name)
		if text == "" {
			continue
		}
		bound := reflect.New(v.Type()).Elem()
		if err := s.setScalar(bound, text, ""); err != nil {
			panic(fmt.Sprintf("document: the bound %s %v", text, err)) // a bug in the tags
		}
		if beyond(number(v), number(bound)) {
			return fmt.Errorf("must be at %s %s, not %v", map[string]string{"min": "least", "max": "most"}[name], text, v)
		}
	}
	return nil
}

// number returns a number, or the nanoseconds of a duration. Documents have none that a float64 cannot hold.
func number(v reflect.Value) float64 {
	switch {
	case v.CanUint():
		return float64(v.Uint())
	case v.CanFloat():
		return v.Float()
	}
	return float64(v.Int())
}

// wellFormed checks a text against its enum and form tags.
func (s *Syntax) wellFormed(text string, tag reflect.StructTag) error {
	if words := strings.Fields(tag.Get("enum")); len(words) > 0 && !slices.Contains(words, text) {
		return fmt.Errorf("must be %s, not %s", strings.Join(words, ", "), Quoted(text))
	}
	name := tag.Get("form")
	if name == "" {
		return nil
	}
	form, ok := s.Forms[name]
	if !ok {
		panic("document: there is no form " + name) // a bug in the tags
	}
	if !form.Match(text) {
		return fmt.Errorf("must be %s, not %s", form.Says, Quoted(text))
	}
	return nil
}
