package output

import (
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
)

// Format is the value of --output.
type Format string

// The formats.
const (
	Table Format = "table" // for people; on a terminal, long cells are cut
	Wide  Format = "wide"  // a table without cuts
	JSON  Format = "json"
	YAML  Format = "yaml"
	Name  Format = "name" // a name for each object, or its ID if it has none
)

func formats() []string {
	return []string{string(Table), string(Wide), string(JSON), string(YAML), string(Name)}
}

// String, Set and Type make a Format a flag's value.
func (f *Format) String() string { return string(*f) }

// Set accepts one of the formats.
func (f *Format) Set(s string) error {
	if !slices.Contains(formats(), s) {
		return fmt.Errorf("must be %s", strings.Join(formats(), ", "))
	}
	*f = Format(s)
	return nil
}

// Type returns the placeholder in the help.
func (f *Format) Type() string { return strings.Join(formats(), "|") }

// Style is how to print results: the values of --output, --quiet and --template.
type Style struct {
	Format   Format
	Quiet    bool // only IDs
	template text
}

// text is a Go template, the value of --template.
type text struct {
	source string
	parsed *template.Template
}

func (t *text) String() string { return t.source }

// Set parses a template.
func (t *text) Set(s string) (err error) {
	t.source = s
	t.parsed, err = template.New("--template").Option("missingkey=zero").Parse(s)
	return err
}

// Type returns the placeholder in the help.
func (t *text) Type() string { return "TEMPLATE" }

// AddFlags defines the flags on cmd and all commands below it.
func (s *Style) AddFlags(cmd *cobra.Command) {
	s.Format = Table
	f := cmd.PersistentFlags()
	f.VarP(&s.Format, "output", "o", "how to print the answer")
	f.BoolVarP(&s.Quiet, "quiet", "q", false, "print only IDs")
	f.Var(&s.template, "template", "print each object with a Go template, such as '{{.name}}'")
	cmd.MarkFlagsMutuallyExclusive("output", "quiet", "template")
	// This fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp))
}

// People reports whether results are printed as tables, for people rather than programs.
func (s *Style) People() bool {
	return (s.Format == Table || s.Format == Wide) && !s.Quiet && s.template.parsed == nil
}
