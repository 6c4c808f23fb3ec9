package vms

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

func (s commands) users() *cobra.Command {
	cmd := verb.Group("user", "Users: who may sign in, with which role and tenant",
		"  mainstay vms user list\n  mainstay vms user add alice --role user --tenant acme --password-file alice.txt", "users")
	cmd.AddCommand(s.userList(), s.userAdd(), s.userSet(), s.userRemove())
	return cmd
}

func (s commands) userList() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "list", Short: "List users by name", Example: "  mainstay vms user list",
	}, output.Columns[vmapi.User]{
		Heads: []string{"USERNAME", "ROLE", "TENANT", "SOURCE", "2FA", "CREATED"},
		Row: func(u vmapi.User) []any {
			return []any{u.Username, u.Role, text(u.Tenant), u.Source, u.TwoFactor, u.Created}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListUsers(ctx, &vmapi.ListUsersParams{Limit: p.Limit, Cursor: p.Cursor})
	})
}

func (s commands) userAdd() *cobra.Command {
	var role, source, passwordFile string
	cmd := s.Change(verb.Verb{
		Use: "add USERNAME", Short: "Add a user with a password, or assign a role to an account of the host",
		Long: `Add a user. With --source local, the service checks the password, which is the first line of --password-file. With
--source pam, the host does, and the user gets the role and the tenant that are given here.`,
		Example: "  mainstay vms user add alice --role user --tenant acme --password-file alice.txt\n" +
			"  mainstay vms user add bob --role viewer --source pam",
		Required: []string{"role"},
	}, "Added the user %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		spec := vmapi.UserSpec{
			Username: c.Args[0], Role: vmapi.Role(role), Tenant: s.of(), Source: new(vmapi.UserSource(source)),
		}
		if passwordFile != "" {
			password, err := readPassword(c, passwordFile)
			if err != nil {
				return nil, err
			}
			spec.Password = &password
		}
		return c.API.CreateUser(ctx, spec)
	})
	cmd.Flags().StringVar(&role, "role", "", "viewer, user or admin")
	cmd.Flags().StringVar(&source, "source", "local", "who checks the password: local or pam")
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "file with the password; - is standard input")
	return cmd
}

func (s commands) userSet() *cobra.Command {
	var role, passwordFile string
	var noTwoFactor, noTenant bool
	cmd := s.Change(verb.Verb{
		Use: "set USERNAME", Short: "Change a user's role, tenant or password", Aliases: []string{"role"},
		Example: "  mainstay vms user set alice --role admin\n  mainstay vms user set alice --tenant beta\n  mainstay vms user set alice --disable-2fa",
		Check: func(cmd *cobra.Command, _ []string) error {
			for _, flag := range []string{"role", "tenant", "no-tenant", "password-file", "disable-2fa"} {
				if cmd.Flags().Changed(flag) {
					return nil
				}
			}
			return exit.Usagef("nothing to change: give at least one of --role, --tenant, --no-tenant, --password-file, --disable-2fa")
		},
	}, "Changed the user %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		change := vmapi.UserChange{Role: verb.Given(c, "role", vmapi.Role(role)), Tenant: s.of()}
		if noTenant {
			change.Tenant = new("")
		}
		if noTwoFactor {
			change.TwoFactor = new(vmapi.UserChangeTwoFactor(false))
		}
		if passwordFile != "" {
			password, err := readPassword(c, passwordFile)
			if err != nil {
				return nil, err
			}
			change.Password = &password
		}
		return c.API.UpdateUser(ctx, c.Args[0], change)
	})
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "viewer, user or admin")
	f.BoolVar(&noTenant, "no-tenant", false, "the user belongs to no tenant any more")
	f.StringVar(&passwordFile, "password-file", "", "file with the new password; - is standard input")
	f.BoolVar(&noTwoFactor, "disable-2fa", false, "turn the second factor off, for who has lost the device")
	return cmd
}

func (s commands) userRemove() *cobra.Command {
	return s.Remove(verb.Verb{
		Use: "remove USERNAME", Short: "Remove a user, whose tokens end at once",
		Example: "  mainstay vms user remove alice --yes",
	}, "Remove the user %s?", "Removed the user %s.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.DeleteUser(ctx, c.Args[0])
	})
}

// readPassword reads the first line of a file, or of standard input.
func readPassword(c *call, path string) (string, error) {
	const longest = 64 << 10
	var line string
	if path == "-" {
		var err error
		line, err = bufio.NewReader(io.LimitReader(c.Cmd.InOrStdin(), longest)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the password: %w", err)
		}
	} else {
		whole, err := verb.ReadText("password-file", path, longest)
		if err != nil {
			return "", err
		}
		line, _, _ = strings.Cut(whole, "\n")
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", exit.Usagef("--password-file: the password is empty")
	}
	return line, nil
}

func (s commands) twoFactor() *cobra.Command {
	cmd := verb.Group("2fa", "Your second factor: set it up, turn it on and off",
		"  mainstay vms 2fa setup\n  mainstay vms 2fa verify 123456")
	cmd.AddCommand(
		s.Object(verb.Verb{
			Use: "setup", Short: "Make the secret of a second factor; it counts once a code of it was verified",
			Example: "  mainstay vms 2fa setup",
		}, func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.SetUpTwoFactor(ctx, vmapi.Nothing{})
		}),
		s.Command(verb.Verb{
			Use: "verify CODE", Short: "Turn the second factor on, and print the recovery codes",
			Example: "  mainstay vms 2fa verify 123456",
		}, func(ctx context.Context, c *call) error {
			a, err := c.Send(c.API.VerifyTwoFactor(ctx, vmapi.Code{Code: c.Args[0]}))
			enabled, err := decode[vmapi.TwoFactorEnabled](a, err)
			if err != nil {
				return err
			}
			return c.Done(a, "The second factor is on. Keep these codes: each stands in for a code once.\n%s",
				strings.Join(enabled.RecoveryCodes, "\n"))
		}),
		s.Change(verb.Verb{
			Use: "disable CODE", Short: "Turn the second factor off, with a code or a recovery code",
			Example: "  mainstay vms 2fa disable 123456",
		}, "The second factor is off.", func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.DisableTwoFactor(ctx, vmapi.Code{Code: c.Args[0]})
		}),
	)
	return cmd
}
