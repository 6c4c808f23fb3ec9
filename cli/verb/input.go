package verb

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

// Given returns a flag's value if the flag was given, otherwise nil, so that the daemon uses its
// default.
func Given[T, A any](c *Call[A], flag string, value T) *T {
	if !c.Cmd.Flags().Changed(flag) {
		return nil
	}
	return &value
}

// Pairs is a flag value of KEY=VALUE that may be repeated.
type Pairs map[string]string

// String, Set and Type make Pairs a flag's value.
func (p *Pairs) String() string { return strings.Join(p.List(), ",") }

// List returns the pairs as KEY=VALUE, sorted.
func (p *Pairs) List() []string {
	all := make([]string, 0, len(*p))
	for _, k := range slices.Sorted(maps.Keys(*p)) {
		all = append(all, k+"="+(*p)[k])
	}
	return all
}

// Set adds one pair.
func (p *Pairs) Set(s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" {
		return errors.New("must be KEY=VALUE")
	}
	if *p == nil {
		*p = Pairs{}
	}
	if _, twice := (*p)[k]; twice {
		return fmt.Errorf("%s is given twice", k)
	}
	(*p)[k] = v
	return nil
}

// Type returns the placeholder in the help.
func (p *Pairs) Type() string { return "KEY=VALUE" }

// ReadText reads a text file of at most limit bytes. flag is the flag that names it.
func ReadText(flag, path string, limit int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	defer func() { _ = file.Close() }() // read only
	raw, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	if int64(len(raw)) > limit {
		return "", exit.Usagef("--%s: %s is larger than %d bytes", flag, path, limit)
	}
	return string(raw), nil
}

// JSON reads the JSON of a flag: the value itself, @FILE, or - for standard input, which is also the
// default.
func (c *Call[A]) JSON(flag, value string) (json.RawMessage, error) {
	raw := []byte(value)
	var err error
	switch {
	case value == "-" || !c.Cmd.Flags().Changed(flag):
		in := c.Cmd.InOrStdin()
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
