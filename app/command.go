package app

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/agent"
	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	hypervisordoc "github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
	"github.com/mainstay-infra/mainstay/service/lb"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
)

// Commands are the commands that run services: dev, serve, agent, lb, doctor, and
// settings, which prints the tables of settings for the documentation.
func Commands() []*cobra.Command {
	commands := []*cobra.Command{devCommand(), serveCommand(), agentCommand(), lbCommand(), doctorCommand(), settingsCommand()}
	for _, c := range commands {
		c.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			cmd.SilenceUsage = true // what fails from here on is no question of usage
			cmd.SetContext(context.WithValue(cmd.Context(), environKey{}, os.Environ()))
		}
	}
	return commands
}

// gcPercent is the garbage collector's target unless GOGC says otherwise. A
// server's live heap is a few tens of MiB, so letting it grow to five times that
// between collections costs little memory and saves a good part of their time.
const gcPercent = 400

type environKey struct{}

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "serve", Short: "Run one service, for production", Args: cobra.NoArgs, RunE: needsService}
	cmd.AddCommand(serveEdgeCommand(), serveLBCommand(), serveHypervisorCommand())
	return cmd
}

// needsService answers a command that was called without a service, or with one
// that does not exist (cobra.NoArgs names it).
func needsService(cmd *cobra.Command, _ []string) error {
	return fault.New(fault.Invalid, "name a service: %s", strings.Join(services, ", "))
}

func serveEdgeCommand() *cobra.Command {
	var file, logLevel, logFormat string
	cmd := &cobra.Command{
		Use:   "edge",
		Short: "Run the edge control plane",
		Long: `Run the edge control plane.

Each setting can be given as a flag, as an environment variable, or in a file; a flag beats the environment, and the
environment beats the file. A secret can also be read from a file: set the variable's name with _FILE appended to the
file's path. An unknown setting or a bad value stops the start.

Without an admin's token or password and without single sign-on, credentials are made on the first start and kept in
credentials.json in the data folder. SIGHUP reads credentials again, from --config and from files.`,
		Example: `  EDGE_ADMIN_TOKEN_FILE=/run/secrets/admin mainstay serve edge --listen 0.0.0.0:8080 --data /var/lib/mainstay/edge
  mainstay serve edge --config /etc/mainstay/edge.yaml --database "$DATABASE_URL"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), logFormat, logLevel)
			if err != nil {
				return err
			}
			environ := cmd.Context().Value(environKey{}).([]string)
			load := func() (cfg edge.Config, err error) {
				err = config.Load(&cfg, edge.EnvPrefix, config.Sources{Flags: cmd.Flags(), Environ: environ, File: file})
				return cfg, err
			}
			cfg, err := load()
			if err == nil && cfg.Database == "" {
				// A process that is refused must not leave credentials beside another's data.
				err = db.CheckFree(edge.DatabaseFile(cfg.Data))
			}
			if err == nil {
				err = firstCredentials(&cfg, log)
			}
			if err != nil {
				return err
			}
			reload := func() (edge.Config, error) {
				cfg, err := load()
				if err != nil {
					return cfg, err
				}
				return cfg, firstCredentials(&cfg, log)
			}
			module := edgeModule(cfg, log, reloading{hangups(cmd.Context()), reload}, func(url, engine string) { log.Info("listening", "service", "edge", "url", url, "stands_on", engine) })
			return Run(cmd.Context(), []Module{module}, func() {})
		},
	}
	config.BindFlags(cmd.Flags(), &edge.Config{}, edge.EnvPrefix)
	cmd.Flags().StringVar(&file, "config", "", "YAML file with settings")
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	return cmd
}

func settingsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "settings", Short: "Print a service's settings as a Markdown table", Hidden: true, Args: cobra.NoArgs, RunE: needsService}
	for _, t := range []struct {
		name, of, prefix string
		settings         any
	}{
		{"edge", "the edge control plane", edge.EnvPrefix, &edge.Config{}},
		{"agent", "the site agent", agent.EnvPrefix, &agent.Config{}},
		{"lb", "the load balancer", lb.EnvPrefix, &lb.Config{}},
		{"hypervisor", "the hypervisor daemon", hypervisor.EnvPrefix, &hypervisor.Config{}},
	} {
		cmd.AddCommand(&cobra.Command{
			Use:   t.name,
			Short: "Print the settings of " + t.of,
			Args:  cobra.NoArgs,
			Run: func(cmd *cobra.Command, _ []string) {
				_, _ = fmt.Fprint(cmd.OutOrStdout(), config.Markdown(config.Settings(t.settings, t.prefix)))
			},
		})
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "hypervisor-document",
		Short: "Print what the hypervisor daemon's document may hold",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			_, _ = fmt.Fprint(cmd.OutOrStdout(), hypervisordoc.Markdown())
		},
	}, &cobra.Command{
		Use:   "lb-document",
		Short: "Print what the load balancer's document may hold",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			_, _ = fmt.Fprint(cmd.OutOrStdout(), configfile.Markdown())
		},
	})
	return cmd
}
