package verb

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mainstay-infra/mainstay/cli/exit"
)

// Verb describes a command. The number of its arguments follows from Use: "rename NAME NEW" takes
// two, "exec VM PROGRAM..." two or more.
type Verb struct {
	Use, Short, Long, Example string
	Aliases                   []string
	// Required are flags that must be given. Check says what else is wrong with the command line. Both are
	// looked at before the server is asked anything.
	Required []string
	Check    func(cmd *cobra.Command, args []string) error
	// Exact refuses the beginning of an ID where an object is named, since something is destroyed.
	Exact bool
}

// Request sends the request of a command and returns the results of the generated method.
type Request[A any] func(ctx context.Context, c *Call[A]) (*http.Response, error)

// Group returns a command that only holds others.
func Group(use, short, example string, aliases ...string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example, Aliases: aliases, RunE: Subcommands}
}

// Subcommands runs a command that only holds others. Without it, a mistyped command would show the help
// and exit with 0.
func Subcommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	err := exit.Usagef("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := Suggestions(cmd, args[0]); len(near) > 0 {
		return exit.Hinted(err, fmt.Sprintf("did you mean %s?", strings.Join(near, " or ")))
	}
	return err
}

// Suggestions returns the names of commands that are so close to a mistyped one that it is probably one
// of them: in a short word, two other letters make another word.
func Suggestions(cmd *cobra.Command, typed string) []string {
	const long = 5
	cmd.SuggestionsMinimumDistance = 1
	if len(typed) >= long {
		cmd.SuggestionsMinimumDistance = 2
	}
	return cmd.SuggestionsFor(typed)
}

// Command returns a command that runs f.
func (s *Session[A]) Command(v Verb, f func(ctx context.Context, c *Call[A]) error) *cobra.Command {
	return v.command(func(cmd *cobra.Command, args []string) error {
		c, err := s.begin(cmd, args)
		if err != nil {
			return err
		}
		if err = c.resolve(cmd.Context(), v.Exact); err == nil {
			err = f(cmd.Context(), c)
		}
		return identify(cmd.Context(), s.api.Service, c.Reach, err)
	})
}

// Local returns a command that runs f, which works on this machine: the call reaches no server.
func (s *Session[A]) Local(v Verb, f func(ctx context.Context, c *Call[A]) error) *cobra.Command {
	return v.command(func(cmd *cobra.Command, args []string) error { return f(cmd.Context(), s.call(cmd, args)) })
}

// command returns a command that runs f after the checks of its command line.
func (v *Verb) command(f func(cmd *cobra.Command, args []string) error) *cobra.Command {
	name, _, _ := strings.Cut(v.Use, " ")
	return &cobra.Command{
		Use: v.Use, Short: v.Short, Long: v.Long, Example: v.Example, Args: arguments(v.Use),
		Aliases: slices.Concat(v.Aliases, shortForms[name], earlierNames[name]), Annotations: shortForm(name),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := v.check(cmd, args); err != nil {
				return err
			}
			return f(cmd, args)
		},
	}
}

func (v *Verb) check(cmd *cobra.Command, args []string) error {
	for _, name := range v.Required {
		if !cmd.Flags().Changed(name) {
			return exit.Usagef("--%s is missing", name)
		}
	}
	if err := nothingEmpty(cmd, takesMany); err != nil {
		return err
	}
	if v.Check == nil {
		return nil
	}
	return v.Check(cmd, args)
}

func takesMany(f *pflag.Flag) bool {
	_, many := f.Value.(pflag.SliceValue)
	return many
}

// nothingEmpty refuses empty values for the flags that which selects. Without it, a script with an
// unset variable would get all objects when it means one.
func nothingEmpty(cmd *cobra.Command, which func(*pflag.Flag) bool) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !which(f) || err != nil {
			return
		}
		values := []string{f.Value.String()}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			values = many.GetSlice()
		}
		if len(values) == 0 || slices.Contains(values, "") {
			err = exit.Usagef("--%s is empty", f.Name)
		}
	})
	return err
}

// shortForms are the short forms of verbs, and earlierNames the names that they had before.
var (
	shortForms   = map[string][]string{"list": {"ls"}, "delete": {"rm"}}
	earlierNames = map[string][]string{"show": {"get"}, "delete": {"remove"}}
)

// shortFormKey is the annotation with the short form of a command.
const shortFormKey = "short form"

func shortForm(name string) map[string]string {
	if len(shortForms[name]) == 0 {
		return nil
	}
	return map[string]string{shortFormKey: strings.Join(shortForms[name], ", ")}
}

// ListShortForms makes the help of all commands below root list short forms instead of all aliases, most
// of which are earlier names.
func ListShortForms(root *cobra.Command) {
	const aliases, short = `{{if gt (len .Aliases) 0}}

Aliases:
  {{.NameAndAliases}}{{end}}`, `{{with index .Annotations "` + shortFormKey + `"}}

Short form:
  {{.}}{{end}}`
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), aliases, short, 1))
}

// Old returns a command under a name that it had before, which the help does not list.
func Old(use string, cmd *cobra.Command) *cobra.Command {
	cmd.Use, cmd.Aliases, cmd.Hidden = use, nil, true
	return cmd
}

// Object returns a command that prints the object that a request returns.
func (s *Session[A]) Object(v Verb, r Request[A]) *cobra.Command {
	return s.Command(v, func(ctx context.Context, c *Call[A]) error {
		a, err := c.Send(r(ctx, c))
		if err != nil {
			return err
		}
		return c.Out.Object(a.Body)
	})
}

// Change returns a command that changes something and reports it. In sentence, %s stands for the
// last argument, as it was typed.
func (s *Session[A]) Change(v Verb, sentence string, r Request[A]) *cobra.Command {
	return s.Command(v, func(ctx context.Context, c *Call[A]) error {
		a, err := c.Send(r(ctx, c))
		if err != nil {
			return err
		}
		return c.Done(a, sentence, c.Typed[len(c.Typed)-1])
	})
}

// Remove returns a command that asks for confirmation before it destroys something. In question and
// done, %s stands for the last argument, as it was typed.
func (s *Session[A]) Remove(v Verb, question, done string, r Request[A]) *cobra.Command {
	return s.Confirmed(v, question, func(ctx context.Context, c *Call[A]) error {
		last := c.Typed[len(c.Typed)-1]
		a, err := c.Send(r(ctx, c))
		if err != nil {
			return err
		}
		if len(a.Body) > 0 {
			return c.Out.ObjectAs(a.Body, func() error { return c.Say(done, last) })
		}
		return c.Say(done, last)
	})
}

// Confirmed returns a command that asks for confirmation before it runs f, which destroys something. In
// question, %s stands for the last argument, as it was typed.
func (s *Session[A]) Confirmed(v Verb, question string, f func(ctx context.Context, c *Call[A]) error) *cobra.Command {
	var yes bool
	v.Exact = true
	v.Check = func(cmd *cobra.Command, args []string) error {
		return confirmable(cmd, fmt.Sprintf(question, args[len(args)-1]), yes)
	}
	cmd := s.Command(v, func(ctx context.Context, c *Call[A]) error {
		if err := c.Confirm(fmt.Sprintf(question, c.Typed[len(c.Typed)-1]), yes); err != nil {
			return err
		}
		return f(ctx, c)
	})
	YesFlag(cmd, &yes)
	return cmd
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
		for i, name := range names {
			// An empty name would address the collection instead of an object in it.
			if args[i] == "" {
				return exit.Usagef("%s is empty", strings.TrimSuffix(name, "..."))
			}
		}
		return nil
	}
}
