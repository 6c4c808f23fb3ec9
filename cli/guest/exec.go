package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

const (
	// maxInput limits the standard input of a program in a guest, in bytes.
	maxInput = 1 << 20
	// longestExec limits how long a program in a guest may run.
	longestExec = 24 * time.Hour
)

// The exit codes of `vm exec` that are not those of a program, as Podman and Docker have them.
const (
	notRun        = 125
	notExecutable = 126
	notFound      = 127
)

// execution holds the flags for running a program.
type execution struct {
	env     verb.Pairs
	cwd     string
	limit   time.Duration
	noStdin bool
}

// Run returns the command exec.
func (t Reach[A]) Run() *cobra.Command {
	var e execution
	cmd := t.Command(verb.Verb{
		Use:   "exec VM PROGRAM...",
		Short: "Run a program in a guest, by its agent",
		Long: `Run a program in a guest through its agent, and exit with the program's exit code. The code is 128 plus the number of
the signal if a signal ended it, 127 if there is no such program, 126 if it cannot be executed, and 125 for every other
failure, which is not the program's. There is no shell and no terminal: use "sh -c" for the former, and
'` + t.Group + ` console' for the latter.

A pipe or a file on standard input is read to its end, up to 1 MiB of text, and passed to the program; -n passes
nothing.`,
		Example: strings.ReplaceAll("  GROUP exec web -- uname -a\n  GROUP exec web --env LANG=C --cwd /tmp -- sh -c 'ls | wc -l'\n"+
			"  GROUP exec web -- tee /etc/motd < motd", "GROUP", t.Group),
	}, func(ctx context.Context, c *verb.Call[A]) error { return t.exec(ctx, c, &e) })
	f := cmd.Flags()
	f.Var(&e.env, "env", "environment variable of the program; may be repeated")
	f.StringVar(&e.cwd, "cwd", "", "folder in which it runs")
	f.DurationVar(&e.limit, "time-limit", time.Minute, "end the program after this time, at most 24h")
	f.BoolVarP(&e.noStdin, "no-stdin", "n", false, "hand it no standard input")
	run, arguments := cmd.RunE, cmd.Args
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return coded(cmd, run(cmd, args)) }
	cmd.Args = func(cmd *cobra.Command, args []string) error { return coded(cmd, arguments(cmd, args)) }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return coded(cmd, exit.Usagef("%w", err)) })
	return cmd
}

// ended is the error of a program that was run, or that the guest could not run.
type ended struct {
	code int
	text string
}

func (e *ended) Error() string { return e.text }

// coded gives an error the exit code of `vm exec`.
func coded(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	var e *ended
	if errors.As(err, &e) {
		return &exit.Error{Code: e.code, Err: err}
	}
	hint := exit.Hint(err)
	if hint == "" && exit.Code(err) == exit.Usage {
		hint = fmt.Sprintf("see '%s --help'", cmd.CommandPath())
	}
	return &exit.Error{Code: notRun, Hint: hint, Err: err}
}

func (t Reach[A]) exec(ctx context.Context, c *verb.Call[A], e *execution) error {
	if e.limit < time.Second || e.limit > longestExec {
		return exit.Usagef("--time-limit must be between 1s and 24h, not %s", e.limit)
	}
	request := Program{
		Argv:           c.Args[1:],
		Cwd:            verb.Given(c, "cwd", e.cwd),
		Stream:         new(true),
		TimeoutSeconds: new(int(e.limit / time.Second)),
	}
	if len(e.env) > 0 {
		request.Env = new(map[string]string(e.env))
	}
	input, err := e.input(c.Cmd.InOrStdin(), t.Group)
	if err != nil {
		return err
	}
	if input != "" {
		request.Stdin = &input
	}
	r, err := c.Open(t.Exec(ctx, c, c.Args[0], request))
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }() // read only
	return follow(ctx, r.Body, c.Cmd.OutOrStdout(), c.Cmd.ErrOrStderr())
}

// input reads piped input. It must be text, since the API accepts only text. group is for hints.
func (e *execution) input(in io.Reader, group string) (string, error) {
	if e.noStdin {
		return "", nil
	}
	if file, ok := in.(*os.File); ok {
		// A terminal, /dev/null and a closed descriptor provide no input.
		if info, err := file.Stat(); err != nil || info.Mode()&os.ModeCharDevice != 0 {
			return "", nil
		}
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the standard input: %w", err)
	case len(raw) > maxInput:
		return "", exit.Hinted(
			exit.Usagef("the standard input is larger than 1 MiB"),
			"'"+group+" cp' takes files of any size into the guest",
		)
	case !utf8.Valid(raw):
		return "", exit.Hinted(
			exit.Usagef("the standard input is not text"), "'"+group+" cp' takes any file into the guest",
		)
	}
	return string(raw), nil
}

// follow writes a program's output as it arrives, and returns its result.
func follow(ctx context.Context, pieces io.Reader, out, errs io.Writer) error {
	for lines := json.NewDecoder(pieces); ; {
		var p piece
		if err := lines.Decode(&p); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted: %w", ctx.Err())
			}
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("the answer broke off before the program ended: %w", err)
		}
		if p.Data != nil {
			to := out
			if p.Stream == "stderr" {
				to = errs
			}
			if _, err := to.Write(p.Data); err != nil {
				return err
			}
		}
		switch {
		case p.Error != "":
			text := "the program did not run to its end: " + output.Escape(p.Error)
			if p.ExitCode != nil && *p.ExitCode != 0 {
				return &ended{*p.ExitCode, text}
			}
			return &ended{failure(p.Error), text}
		case p.ExitCode != nil && *p.ExitCode != 0:
			return &ended{code: *p.ExitCode} // the program has printed its own error
		case p.ExitCode != nil:
			return nil
		}
	}
}

// failure returns the exit code for a program that was not run. The API has no code for the reason, but
// the agent's texts are its own and those of Linux.
func failure(reason string) int {
	switch {
	case strings.Contains(reason, "there is no program "), strings.HasSuffix(reason, ": no such file or directory"):
		return notFound
	case strings.HasSuffix(reason, ": permission denied"), strings.HasSuffix(reason, ": exec format error"):
		return notExecutable
	}
	return notRun
}
