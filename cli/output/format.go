package output

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Format is the value of --output.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

func formats() []string { return []string{string(Table), string(JSON), string(YAML)} }

// String, Set and Type make a Format a flag's value.
func (f *Format) String() string { return string(*f) }

// Set accepts one of the three formats.
func (f *Format) Set(s string) error {
	if !slices.Contains(formats(), s) {
		return fmt.Errorf("must be %s", strings.Join(formats(), ", "))
	}
	*f = Format(s)
	return nil
}

// Type returns the placeholder in the help.
func (f *Format) Type() string { return strings.Join(formats(), "|") }

// AddFlag defines --output on cmd and all commands below it.
func (f *Format) AddFlag(cmd *cobra.Command) {
	*f = Table
	cmd.PersistentFlags().VarP(f, "output", "o", "how to print the answer")
	// This fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats(), cobra.ShellCompDirectiveNoFileComp))
}
