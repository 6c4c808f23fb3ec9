package verb

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// YesFlag defines --yes.
func YesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// Confirm asks the user for confirmation. Without a terminal, --yes is required.
func (c *Call[A]) Confirm(question string, yes bool) error {
	if err := confirmable(c.Cmd, question, yes); err != nil || yes {
		return err
	}
	in := c.Cmd.InOrStdin()
	if _, err := fmt.Fprintf(c.Cmd.ErrOrStderr(), "%s [y/N] ", output.Escape(question)); err != nil {
		return err
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return fmt.Errorf("no confirmation: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(line)); a != "y" && a != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// confirmable returns an error if there is a question and nobody to ask.
func confirmable(cmd *cobra.Command, question string, yes bool) error {
	if !yes && !output.IsTerminal(cmd.InOrStdin()) {
		return exit.Usagef("%s Nobody is there to ask: confirm with --yes", output.Escape(question))
	}
	return nil
}
