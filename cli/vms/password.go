package vms

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/terminal"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) password() *cobra.Command {
	var currentFile, newFile string
	cmd := s.Command(verb.Verb{
		Use: "password", Short: "Change your own password, which ends all your tokens",
		Long: `Change your own password. On a terminal, the command asks for both passwords, and does not show them. All your tokens
end, also the one that this command uses: log in again with 'mainstay login vm'. The password of an account of the host
is changed on the host.`,
		Example: "  mainstay vms password\n  mainstay vms password --current-file old.txt --new-file new.txt",
	}, func(ctx context.Context, c *call) error {
		current, err := secret(ctx, c, "Current password", "--current-file", currentFile)
		if err != nil {
			return err
		}
		next, err := secret(ctx, c, "New password", "--new-file", newFile)
		if err != nil {
			return err
		}
		if newFile == "" {
			again, err := secret(ctx, c, "New password, again", "--new-file", "")
			if err != nil {
				return err
			}
			if again != next {
				return exit.Usagef("the new passwords differ")
			}
		}
		change := vmapi.PasswordChange{CurrentPassword: current, NewPassword: next}
		if _, err := c.Send(c.API.ChangePassword(ctx, change)); err != nil {
			return err
		}
		return c.Say("Your password is changed; log in again with 'mainstay login vm'.")
	})
	f := cmd.Flags()
	f.StringVar(&currentFile, "current-file", "", "file with the current password; - is standard input")
	f.StringVar(&newFile, "new-file", "", "file with the new password; - is standard input")
	return cmd
}

// secret reads a secret from a file, or asks for it on the terminal.
func secret(ctx context.Context, c *call, question, flag, path string) (string, error) {
	if path != "" {
		return readPassword(c, path)
	}
	in := c.Cmd.InOrStdin()
	if !output.IsTerminal(in) {
		return "", exit.Usagef("%s is missing, and nobody is there to ask", flag)
	}
	return terminal.Secret(ctx, in.(*os.File), c.Cmd.ErrOrStderr(), question)
}
