package app

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Commands returns the commands that run services: dev, serve, those of single services, doctor,
// and settings, which prints the tables of settings for the documentation.
func Commands() []*cobra.Command {
	commands := []*cobra.Command{devCommand(), serveCommand(), doctorCommand(), settingsCommand()}
	for _, u := range Units() {
		if u.command != nil {
			commands = append(commands, u.command())
		}
	}
	for _, c := range commands {
		c.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			cmd.SilenceUsage = true // errors from here on are not usage errors
			cmd.SetContext(context.WithValue(cmd.Context(), environKey{}, os.Environ()))
		}
	}
	return commands
}

// gcPercent is the garbage collector's target unless GOGC is set. A server's live heap is a few
// tens of MiB, so letting it grow to five times that between collections costs little memory and
// saves much of their time.
const gcPercent = 400

// spareMemory lets the heap grow to twice its live part only, unless GOGC is set: for services that serve few requests
// at once, on hosts whose memory is for others.
func spareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(100)
	}
}

type environKey struct{}

// environOf returns the environment that a command was started with.
func environOf(cmd *cobra.Command) []string { return cmd.Context().Value(environKey{}).([]string) }

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one service, for production",
		Args:  cobra.NoArgs,
		RunE:  needsService,
	}
	for _, u := range unitsThat(serve) {
		cmd.AddCommand(u.serve())
	}
	return cmd
}

func serve(u Unit) bool { return u.serve != nil }

// needsService is the error for a command without a service, or with an unknown one (cobra.NoArgs
// names it).
func needsService(*cobra.Command, []string) error {
	return fault.New(fault.Invalid, "name a service: %s", strings.Join(namesOf(unitsThat(serve)), ", "))
}

func settingsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "settings", Short: "Print a service's settings as a Markdown table", Hidden: true,
		Args: cobra.NoArgs, RunE: needsService,
	}
	for _, u := range Units() {
		cmd.AddCommand(printCommand(u.Name, "Print the settings of "+u.Title, func() string {
			return config.Markdown(config.Settings(u.settings(), u.prefix))
		}))
		if u.document != nil {
			cmd.AddCommand(printCommand(u.Name+"-document", "Print what "+u.Title+"'s document may hold", u.document))
		}
	}
	return cmd
}

func printCommand(name, short string, text func() string) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			_, _ = fmt.Fprint(cmd.OutOrStdout(), text())
		},
	}
}
