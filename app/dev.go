package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/web"
)

// devMode holds the settings of dev mode for a service.
type devMode struct {
	environ         []string
	data, host      string
	log             *slog.Logger
	credentials     map[string]string // the service's own
	credentialsFile string
	ring            *session.Ring     // of the consoles
	others          credentials       // of all services
	urls            map[string]string // of the services that run already, by name
}

func (mode *devMode) isSet(variable string) bool {
	return slices.ContainsFunc(mode.environ, func(v string) bool { return strings.HasPrefix(v, variable+"=") })
}

// devPart is a service's part of dev mode.
type devPart struct {
	signIn string // what people sign in with
	// tokens are the tokens with which the console of another service may sign in people of a role
	// (package session).
	tokens map[string]session.Issue
	// module returns the module to run. started is called with its URL and its engine.
	module func(started func(url, engine string)) Module
}

// devService is a service that runs in dev mode.
type devService struct {
	unit                Unit
	url, engine, signIn string
	console             bool
}

func devCommand() *cobra.Command {
	mode := devMode{}
	var logLevel string
	var only []string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run all services on this machine, with embedded databases",
		Long: `Run all services in one process on loopback, each at its default address, with embedded databases.

VMs need QEMU; "mainstay doctor" shows what else this machine lacks. All state is kept in one folder. On the first
start, credentials are made there, in credentials.json.
Environment variables of the services (see "mainstay serve edge --help") are honoured.`,
		Example: `  mainstay dev
  mainstay dev --data /tmp/try --only edge
  EDGE_LISTEN=127.0.0.1:9080 mainstay dev`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			units, err := devUnits(only)
			if err != nil {
				return err
			}
			if mode.log, err = telemetry.NewLogger(cmd.ErrOrStderr(), "text", logLevel); err != nil {
				return err
			}
			mode.environ = environOf(cmd)
			return runDev(cmd, mode, units)
		},
	}
	cmd.Flags().StringVar(&mode.data, "data", ".mainstay", "folder for all state")
	cmd.Flags().StringVar(&mode.host, "host", "127.0.0.1", "address to listen on")
	cmd.Flags().StringSliceVar(&only, "only", nil, "run only these services, for example edge,lb")
	cmd.Flags().StringVar(&logLevel, "log-level", "warn", "debug, info, warn or error")
	return cmd
}

// devUnits returns the services to run in dev mode: all that support it, unless some are named.
func devUnits(only []string) ([]Unit, error) {
	units := unitsThat(func(u Unit) bool { return u.dev != nil })
	names := namesOf(units)
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, fault.InvalidField(
				"only", "there is no service %q; there are: %s", name, strings.Join(names, ", "),
			)
		}
	}
	return slices.DeleteFunc(units, func(u Unit) bool { return len(only) > 0 && !slices.Contains(only, u.Name) }), nil
}

func runDev(cmd *cobra.Command, mode devMode, units []Unit) error {
	all, path, err := loadCredentials(mode.data)
	if err != nil {
		return err
	}
	mode.credentialsFile, mode.ring = path, session.NewRing(time.Now)
	mode.others, mode.urls = all, map[string]string{}
	var modules []Module
	var running []devService
	for _, u := range units {
		mode.credentials = all[u.Name]
		part, err := u.dev(mode)
		if err != nil {
			return err
		}
		modules = append(modules, part.module(func(url, engine string) {
			hasConsole := web.Console(u.Name) != nil
			mode.urls[u.Name] = url
			running = append(running, devService{u, url, engine, part.signIn, hasConsole})
			if hasConsole {
				mode.ring.Join(session.Member{Name: u.Name, Title: u.console(), URL: url, Tokens: part.tokens})
			}
		}))
	}
	return addressTaken(units, Run(cmd.Context(), modules, func() {
		_, _ = io.WriteString(cmd.OutOrStdout(), devText(os.Args[0], running))
	}))
}

// addressTaken adds a hint to err if another program uses the address.
func addressTaken(units []Unit, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	var variables []string
	for _, u := range units {
		variables = append(variables, u.listens()...)
	}
	names := strings.Join(variables, ", ")
	if i := strings.LastIndex(names, ", "); i >= 0 {
		names = names[:i] + " or " + names[i+len(", "):]
	}
	return fmt.Errorf("%w; another program listens there: stop it, or set %s to another address", err, names)
}

// devText returns the message that dev mode prints once all services are running.
func devText(program string, running []devService) string {
	text := &strings.Builder{}
	// A Builder does not fail.
	_, _ = fmt.Fprintf(text, "Mainstay %s is running. Stop it with Ctrl-C.\n\n", telemetry.BuildInfo().Version)
	w := tabwriter.NewWriter(text, 2, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "  SERVICE\tADDRESS\tSTANDS ON\tSIGN IN")
	for _, s := range running {
		_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", s.unit.Name, s.url, s.engine, s.signIn)
	}
	_ = w.Flush()
	return text.String() + pages(running) + firstSteps(program, running)
}

// pages returns a hint about the pages that a browser can open.
func pages(running []devService) string {
	var without []string
	for _, s := range running {
		if s.unit.API && !s.console {
			without = append(without, s.unit.Name)
		}
	}
	switch {
	case slices.ContainsFunc(running, func(s devService) bool { return s.console }):
		text := "\nOpen an address for the console; the API reference is at /docs."
		if len(without) > 0 {
			text += " No console yet: " + strings.Join(without, ", ") + "."
		}
		return text + "\n"
	case len(without) > 0:
		return "\nThe API reference is at /docs of an address. No console is built in for " + strings.Join(without, ", ") + ".\n"
	}
	return ""
}

// firstSteps returns commands to try. They use the path by which the program was started, since it
// need not be on PATH yet.
func firstSteps(program string, running []devService) string {
	var steps strings.Builder
	for _, s := range running {
		if len(s.unit.Try) > 0 {
			steps.WriteString("  " + program + " " + strings.Join(s.unit.Try, " && "+program+" ") + "\n")
		}
	}
	if steps.Len() == 0 {
		return ""
	}
	return "Try in another terminal, in this folder:\n\n" + steps.String()
}
