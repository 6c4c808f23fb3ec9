// Package login implements `mainstay login` and `mainstay logout`: credentials in the contexts of
// package contexts.
//
// Invariants: a credential is stored only after the server has accepted it; no credential is printed,
// shown while it is typed, or taken from the command line, which other users of the machine can see.
package login

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/terminal"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

const (
	// maxSecret limits a file with a token or a password, in bytes.
	maxSecret = 64 << 10
	// firstContext is the context that is made when there is none.
	firstContext = "default"
)

// attempt is one run of `mainstay login`.
type attempt struct {
	cmd      *cobra.Command
	env      client.Environment
	accounts []client.Account

	context, server, caFile           string
	username, passwordFile, tokenFile string
	code                              string
}

// New returns the commands login and logout.
func New(env client.Environment, accounts ...client.Account) []*cobra.Command {
	return []*cobra.Command{login(env, accounts), logout(env, accounts)}
}

func login(env client.Environment, accounts []client.Account) *cobra.Command {
	a := &attempt{env: env, accounts: accounts}
	names := strings.Join(services(accounts), ", ")
	cmd := &cobra.Command{
		Use:   "login [SERVICE]",
		Short: "Store the server and the credential of a service, after asking for what is missing",
		Long: `Store the server and the credential of a service in the current context, so that later commands need neither. On a
terminal, the command asks for what is missing, and does not show secrets. The server must accept the credential first.

A name and a password are exchanged for a token of 12 hours; the password is not stored. There are no flags for secrets,
since other users of the machine can see flags: --token-file and --password-file take a file, or - for standard input.

Services: ` + names + `.`,
		Example: "  mainstay login\n  mainstay login edge --server https://edge.example.com --username admin\n" +
			"  pass show lb | mainstay login lb --server https://lb-1.example.com:9870 --token-file -",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeServices(accounts),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.cmd = cmd
			return a.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&a.server, "server", "", "URL of the server")
	f.StringVar(&a.caFile, "ca-file", "", "PEM file with certificate authorities to trust besides the system's")
	f.StringVar(&a.context, "context", "", "context to store it in (default: the current one)")
	f.StringVarP(&a.username, "username", "u", "", "who to log in as, for services with passwords")
	f.StringVar(&a.passwordFile, "password-file", "", "file with the password; - is standard input")
	f.StringVar(&a.code, "code", "", "code of the second factor, or a recovery code; it works once")
	f.StringVar(&a.tokenFile, "token-file", "", "file with a token; - is standard input")
	cmd.MarkFlagsMutuallyExclusive("token-file", "password-file")
	cmd.MarkFlagsMutuallyExclusive("token-file", "username")
	return cmd
}

func services(accounts []client.Account) []string {
	var names []string
	for _, a := range accounts {
		names = append(names, a.Service.Unit)
	}
	return names
}

func completeServices(accounts []client.Account) cobra.CompletionFunc {
	return cobra.FixedCompletions(services(accounts), cobra.ShellCompDirectiveNoFileComp)
}

// accountOf returns the account of a service.
func accountOf(accounts []client.Account, service string) (client.Account, error) {
	for _, a := range accounts {
		if a.Service.Unit == service {
			return a, nil
		}
	}
	return client.Account{}, exit.Usagef("SERVICE must be %s, not %q", strings.Join(services(accounts), ", "), service)
}

func (a *attempt) run(ctx context.Context, args []string) error {
	all, err := a.env.Contexts()
	if err != nil {
		return err
	}
	name := cmp.Or(a.context, all.Current, firstContext)
	if err := client.CheckContextName(name); err != nil {
		return err
	}
	var service string
	if len(args) > 0 {
		service = args[0]
	} else {
		question := "Service (" + strings.Join(services(a.accounts), ", ") + ")"
		if service, err = a.ask(ctx, question, a.accounts[0].Service.Unit, "SERVICE"); err != nil {
			return err
		}
	}
	account, err := accountOf(a.accounts, service)
	if err != nil {
		return err
	}
	place, err := a.place(ctx, account, all.All[name][service])
	if err != nil {
		return err
	}
	expires, err := a.credential(ctx, account, &place)
	if err != nil {
		return err
	}
	who, err := account.Check(ctx, place)
	if err != nil {
		return err
	}
	if err := a.store(name, service, place); err != nil {
		return err
	}
	return a.report(account, name, who, place, expires)
}

// place returns the server to log in to, without a credential.
func (a *attempt) place(ctx context.Context, account client.Account, known client.Place) (client.Place, error) {
	p := client.Place{Server: a.server, CAFile: cmp.Or(a.caFile, known.CAFile)}
	if p.Server == "" {
		usual := cmp.Or(known.Server, account.Default)
		var err error
		if p.Server, err = a.ask(ctx, "Server", usual, "--server"); err != nil {
			return p, err
		}
	}
	server, err := client.ServerURL("--server", p.Server, account.Default, "/api/v1")
	if err != nil {
		return p, err
	}
	p.Server = server.String()
	return p, nil
}

// credential adds the token to a place. expires is zero if it stays valid.
func (a *attempt) credential(
	ctx context.Context, account client.Account, p *client.Place,
) (expires time.Time, err error) {
	byPassword := account.Session != nil && a.tokenFile == ""
	if !byPassword && (a.username != "" || a.passwordFile != "") {
		return expires, exit.Usagef("%s has no passwords; give a token", account.Service.Name)
	}
	if byPassword && a.username == "" && a.passwordFile == "" {
		if a.username, err = a.ask(ctx, "Username (empty for a token)", "", "--token-file or --password-file"); err != nil {
			return expires, err
		}
		byPassword = a.username != ""
	}
	if !byPassword {
		p.Token, err = a.secret(ctx, "Token", "--token-file", a.tokenFile)
		return expires, err
	}
	password, err := a.secret(ctx, "Password", "--password-file", a.passwordFile)
	if err != nil {
		return expires, err
	}
	l := client.Login{Username: cmp.Or(a.username, "admin"), Password: password, Code: a.code}
	p.Token, expires, err = account.Session(ctx, *p, l)
	if err != nil && l.Code == "" && account.NeedsCode != nil && account.NeedsCode(err) {
		if l.Code, err = a.ask(ctx, "Code of the second factor, or a recovery code", "", "--code"); err != nil {
			return expires, err
		}
		p.Token, expires, err = account.Session(ctx, *p, l)
	}
	return expires, err
}

// person returns the terminal on which somebody can be asked, or nil.
func (a *attempt) person() *os.File {
	in := a.cmd.InOrStdin()
	if !output.IsTerminal(in) {
		return nil
	}
	return in.(*os.File)
}

// ask asks for what is not a secret. flag is what gives it where nobody can be asked.
func (a *attempt) ask(ctx context.Context, question, usual, flag string) (string, error) {
	terminalFile := a.person()
	if terminalFile == nil {
		return "", exit.Usagef("%s is missing, and nobody is there to ask", flag)
	}
	return terminal.Ask(ctx, terminalFile, a.cmd.ErrOrStderr(), question, usual)
}

// secret reads a secret from a file, standard input, or a person.
func (a *attempt) secret(ctx context.Context, what, flag, path string) (secret string, err error) {
	switch {
	case path == "-":
		secret, err = terminal.Line(a.cmd.InOrStdin())
		if err == io.EOF {
			err = nil
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", flag, err)
		}
	case path != "":
		if secret, err = verb.ReadText(strings.TrimPrefix(flag, "--"), path, maxSecret); err != nil {
			return "", err
		}
	case a.person() == nil:
		return "", exit.Usagef("%s is missing, and nobody is there to ask; - is standard input", flag)
	default:
		if secret, err = terminal.Secret(ctx, a.person(), a.cmd.ErrOrStderr(), what); err != nil {
			return "", err
		}
	}
	if secret = strings.TrimSpace(secret); secret == "" {
		return "", exit.Usagef("the %s is empty", strings.ToLower(what))
	}
	return secret, nil
}

// store adds the place to what the contexts are now, since a person may have taken long to answer.
func (a *attempt) store(name, service string, p client.Place) error {
	return a.env.ChangeContexts(func(all *client.Contexts) error {
		if all.All[name] == nil {
			all.All[name] = client.Context{}
		}
		all.All[name][service] = p
		all.Current = cmp.Or(all.Current, name)
		return nil
	})
}

func (a *attempt) report(
	account client.Account, name, who string, p client.Place, expires time.Time,
) error {
	text := fmt.Sprintf("Logged in to %s at %s", account.Service.Name, p.Server)
	if who != "" {
		text += " as " + who
	}
	text += fmt.Sprintf(", in the context %s.", name)
	if !expires.IsZero() {
		text += fmt.Sprintf(" The session ends at %s.", expires.Local().Format(time.DateTime))
	}
	if _, err := fmt.Fprintln(a.cmd.OutOrStdout(), output.Escape(text)); err != nil {
		return err
	}
	usual, err := client.ServerURL("", account.Default, account.Default, "")
	if err != nil {
		return err
	}
	if dev, err := account.Service.DevCredential(a.env, usual); err == nil && dev != "" {
		_, err := fmt.Fprintf(
			a.cmd.ErrOrStderr(),
			"In this folder, commands still talk to %s, since \"mainstay dev\" left its credentials in .mainstay.\n",
			account.Default,
		)
		return err
	}
	return nil
}

func logout(env client.Environment, accounts []client.Account) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "logout [SERVICE]",
		Short: "Forget the credentials of the current context, or of one service",
		Long: `Forget the credentials of the current context, or of one service, and end their sessions. The servers stay in the
context.`,
		Example:           "  mainstay logout\n  mainstay logout edge",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeServices(accounts),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen := accounts
			if len(args) > 0 {
				one, err := accountOf(accounts, args[0])
				if err != nil {
					return err
				}
				chosen = []client.Account{one}
			}
			return forget(cmd, env, name, chosen)
		},
	}
	cmd.Flags().StringVar(&name, "context", "", "context to log out of (default: the current one)")
	return cmd
}

// forget removes credentials. A server that cannot be reached does not keep them here.
func forget(cmd *cobra.Command, env client.Environment, name string, accounts []client.Account) error {
	all, err := env.Contexts()
	if err != nil {
		return err
	}
	name = cmp.Or(name, all.Current)
	places := all.All[name]
	var ended []client.Account
	for _, a := range accounts {
		if places[a.Service.Unit].Token != "" {
			ended = append(ended, a)
		}
	}
	if len(ended) == 0 {
		return &exit.Error{
			Code: exit.NotFound, Err: fmt.Errorf("there is no credential to forget"), Hint: "'mainstay context list' shows what there is",
		}
	}
	for _, a := range ended {
		place := places[a.Service.Unit]
		if a.End != nil {
			if err := a.End(cmd.Context(), place); err != nil {
				_, _ = fmt.Fprintf( // only the result counts
					cmd.ErrOrStderr(), "The session stays valid until it expires: %s\n", output.Escape(err.Error()),
				)
			}
		}
	}
	err = env.ChangeContexts(func(now *client.Contexts) error {
		for _, a := range ended {
			// Somebody may have logged in again meanwhile.
			if place := now.All[name][a.Service.Unit]; place.Token == places[a.Service.Unit].Token {
				place.Token = ""
				now.All[name][a.Service.Unit] = place
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	names := services(ended)
	slices.Sort(names)
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Logged out of %s.\n", strings.Join(names, ", "))
	return err
}
