package edge

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// confirm asks the user for confirmation. Without a terminal, --yes is required.
func (c *call) confirm(question string, yes bool) error {
	if yes {
		return nil
	}
	in := c.cmd.InOrStdin()
	if !output.IsTerminal(in) {
		return exit.Usagef("%s Nobody is there to ask: confirm with --yes", output.Escape(question))
	}
	if _, err := fmt.Fprintf(c.cmd.ErrOrStderr(), "%s [y/N] ", output.Escape(question)); err != nil {
		return err
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return fmt.Errorf("no confirmation: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(line)); a != "y" && a != "yes" {
		return fmt.Errorf("nothing was changed")
	}
	return nil
}

// say prints what was done, for people. Programs use the exit code.
func (c *call) say(format string, args ...any) error {
	if c.format != output.Table {
		return nil
	}
	_, err := fmt.Fprintln(c.out.Out, output.Escape(fmt.Sprintf(format, args...)))
	return err
}
