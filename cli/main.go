package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
)

// IO is the part of the process's environment that a command line uses.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
	// Getenv reads environment variables. Nil means os.Getenv.
	Getenv func(string) string
	// Dir is the directory in which .mainstay is looked up. Empty means the working directory.
	Dir string
	// ConfigDir is the directory of the contexts. Empty means mainstay in the user's directory for
	// configuration.
	ConfigDir string
}

func (s IO) environment() client.Environment {
	env := client.Environment{Getenv: s.Getenv, Dir: cmp.Or(s.Dir, "."), ConfigDir: s.ConfigDir}
	if env.Getenv == nil {
		env.Getenv = os.Getenv
	}
	return env
}

// Main runs a command line (without the program's name) and returns the exit code. extra are
// further commands.
func Main(ctx context.Context, args []string, stdio IO, extra ...*cobra.Command) int {
	root := NewRoot(stdio, extra...)
	ran := markRuns(root)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exit.OK
	}
	code, hint := exit.Code(err), exit.Hint(err)
	if !*ran && code == exit.Failure {
		code = exit.Usage
	}
	if hint == "" {
		hint = hintFor(cmd, code)
	}
	if err.Error() == "" {
		return code // of a program that was run elsewhere and has printed its own error
	}
	// A failure to write this cannot be reported anywhere.
	_, _ = fmt.Fprintf(stdio.Err, "mainstay: %v\n", err)
	if hint != "" {
		_, _ = fmt.Fprintf(stdio.Err, "hint: %s\n", hint)
	}
	return code
}

// markRuns makes every command below root record that it ran. Errors before that are usage errors,
// for which cobra has no error type.
func markRuns(root *cobra.Command) *bool {
	ran := false
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				ran = true
				return run(cmd, args)
			}
		}
		for _, child := range cmd.Commands() {
			walk(child)
		}
	}
	walk(root)
	return &ran
}

// hintFor returns a hint for errors that have none.
func hintFor(cmd *cobra.Command, code int) string {
	switch code {
	case exit.Usage:
		return fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	case exit.NotFound:
		if cmd.Parent() == nil {
			return ""
		}
		for _, sibling := range cmd.Parent().Commands() {
			if sibling.Name() == "list" && sibling != cmd {
				return fmt.Sprintf("'%s' shows what there is", sibling.CommandPath())
			}
		}
	}
	return ""
}
