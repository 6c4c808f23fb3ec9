package edge

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/exit"
)

// verb describes a command. The number of its arguments follows from use: "rename ID NAME" takes
// two, "label ID LABEL..." two or more.
type verb struct {
	use, short, long, example string
}

// request sends the request of a command and returns the results of the generated method.
type request func(ctx context.Context, c *call) (*http.Response, error)

// group returns a command that only holds others.
func group(use, short, example string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, Aliases: aliases, SuggestionsMinimumDistance: 2,
		// Without this, a mistyped command would show the help and exit with 0.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			err := exit.Usagef("unknown command %q for %q", args[0], cmd.CommandPath())
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return exit.Hinted(err, fmt.Sprintf("did you mean %s?", strings.Join(near, " or ")))
			}
			return err
		},
	}
}

// command returns a command that runs f.
func (s *session) command(v verb, f func(ctx context.Context, c *call) error) *cobra.Command {
	return &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: v.example, Args: arguments(v.use),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := s.begin(cmd, args)
			if err != nil {
				return err
			}
			return f(cmd.Context(), c)
		},
	}
}

// object returns a command that prints the object that a request returns.
func (s *session) object(v verb, r request) *cobra.Command {
	return s.command(v, func(ctx context.Context, c *call) error {
		a, err := c.send(r(ctx, c))
		if err != nil {
			return err
		}
		return c.out.Object(a.Body)
	})
}

// get returns the command that shows one object.
func (s *session) get(noun, what string, r request) *cobra.Command {
	return s.object(verb{
		use: "get ID", short: "Show one " + what,
		example: fmt.Sprintf("  mainstay edge %s get ID\n  mainstay edge %s get ID -o yaml", noun, noun),
	}, r)
}

// remove returns a command that asks for confirmation before it destroys something. In question, %s
// stands for the id.
func (s *session) remove(v verb, question, done string, r request) *cobra.Command {
	var yes bool
	cmd := s.command(v, func(ctx context.Context, c *call) error {
		if err := c.confirm(fmt.Sprintf(question, c.args[0]), yes); err != nil {
			return err
		}
		a, err := c.send(r(ctx, c))
		if err != nil {
			return err
		}
		if len(a.Body) > 0 {
			return c.out.Object(a.Body)
		}
		return c.say("%s %s.", done, c.args[0])
	})
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// delete returns the command that deletes one object. consequence may be empty.
func (s *session) delete(noun, what, consequence string, r request) *cobra.Command {
	return s.remove(verb{
		use: "delete ID", short: "Delete one " + what,
		example: fmt.Sprintf("  mainstay edge %s delete ID\n  mainstay edge %s delete ID --yes", noun, noun),
	}, "Delete "+what+" %s"+consequence+"?", "Deleted "+what, r)
}

// arguments checks the number of arguments against use.
func arguments(use string) cobra.PositionalArgs {
	names := strings.Fields(use)[1:]
	open := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return exit.Usagef("%s is missing", strings.TrimSuffix(names[len(args)], "..."))
		}
		if len(args) > len(names) && !open {
			return exit.Usagef("unexpected argument %q", args[len(names)])
		}
		for i, arg := range args {
			// An empty id would address the collection instead of an object in it.
			if arg == "" {
				return exit.Usagef("%s is empty", strings.TrimSuffix(names[min(i, len(names)-1)], "..."))
			}
		}
		return nil
	}
}
