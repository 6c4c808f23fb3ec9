package edge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// given returns a flag's value if the flag was given, otherwise nil, so that the server uses its
// default.
func given[T any](c *call, flag string, value T) *T {
	if !c.cmd.Flags().Changed(flag) {
		return nil
	}
	return &value
}

// required returns an error if one of the flags was not given.
func (c *call) required(flags ...string) error {
	for _, name := range flags {
		if !c.cmd.Flags().Changed(name) {
			return exit.Usagef("--%s is missing", name)
		}
	}
	return nil
}

// json reads the JSON of a flag: the value itself, @FILE, or - for standard input, which is also
// the default.
func (c *call) json(flag, value string) (json.RawMessage, error) {
	raw := []byte(value)
	var err error
	switch {
	case value == "-" || !c.cmd.Flags().Changed(flag):
		in := c.cmd.InOrStdin()
		if value != "-" && output.IsTerminal(in) {
			return nil, exit.Usagef("--%s is missing: JSON, @FILE or - for standard input", flag)
		}
		raw, err = io.ReadAll(in)
	case strings.HasPrefix(value, "@"):
		raw, err = os.ReadFile(value[1:])
	}
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	if !json.Valid(raw) {
		return nil, exit.Usagef("--%s is not valid JSON (text needs quotes, as in '\"text\"')", flag)
	}
	return raw, nil
}

// pairs is a flag value of KEY=VALUE that may be repeated.
type pairs map[string]string

// String, Set and Type make pairs a flag's value.
func (p *pairs) String() string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(*p)) {
		all = append(all, k+"="+(*p)[k])
	}
	return strings.Join(all, ",")
}

// Set adds one pair.
func (p *pairs) Set(s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" {
		return errors.New("must be KEY=VALUE")
	}
	if *p == nil {
		*p = pairs{}
	}
	(*p)[k] = v
	return nil
}

// Type returns the placeholder in the help.
func (p *pairs) Type() string { return "KEY=VALUE" }
