package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/agent"
)

// The agent runs on small machines, so unlike a server's, its heap is kept small, unless GOGC or
// GOMEMLIMIT are set.
const (
	agentGCPercent   = 50
	agentMemoryLimit = 12 << 20 // bytes; SQLite's memory and the program itself are not included
	// leanEvery is the interval for releasing unused memory. In the first seconds it is shorter,
	// since most unused memory is needed only for the start.
	leanEvery = 20 * time.Second
	leanFirst = 250 * time.Millisecond
)

func agentCommand() *cobra.Command {
	var file, logLevel, logFormat string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of an edge site",
		Long: `Run the agent of an edge site.

It enrolls the site once and from then on keeps events, device twins, updates and deployments going with or without a
link to the control plane. Local programs reach it on a socket in the data folder and on a loopback address.

Each setting can be given as a flag, as an environment variable, or in a file; a flag beats the environment, and the
environment beats the file. A secret can also be read from a file: set the variable's name with _FILE appended to the
file's path. An unknown setting or a bad value stops the start.`,
		Example: `  AGENT_ENROLLMENT_TOKEN_FILE=/run/secrets/enroll mainstay agent --server https://edge.example.com:8080 --name oslo-1
  mainstay agent --config /etc/mainstay/agent.yaml
  curl --unix-socket /var/lib/mainstay-agent/agent.sock http://localhost/v1/events \
    -d '{"topic": "pump/started", "payload": {"rpm": 1450}}'
  mainstay agent status
  mainstay agent doctor --config /etc/mainstay/agent.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limitMemory()
			// Release the memory of the other services' packages, which were initialized too.
			// stayLean reports errors.
			_ = releaseUnused()
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), logFormat, logLevel)
			if err != nil {
				return err
			}
			cfg, err := agentConfig(cmd, file)
			if err != nil {
				return err
			}
			module := agentModule(
				cfg,
				agent.Deps{Log: log.With("service", "agent"), Registry: telemetry.NewRegistry(), Now: time.Now},
				func(listening []string) {
					log.Info("listening", "service", "agent", "at", strings.Join(listening, " "))
				},
			)
			go stayLean(cmd.Context(), log)
			go tellHangups(cmd.Context(), hangups(cmd.Context()), log)
			return Run(cmd.Context(), []Module{module}, func() {})
		},
	}
	bindAgentFlags(cmd, &file)
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	cmd.AddCommand(agentDoctorCommand())
	return cmd
}

// tellHangups logs after each SIGHUP that it has no effect, until ctx ends.
func tellHangups(ctx context.Context, reload <-chan struct{}, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
			log.Info("SIGHUP: the agent has nothing to read again; changed settings take a restart")
		}
	}
}

func bindAgentFlags(cmd *cobra.Command, file *string) {
	config.BindFlags(cmd.Flags(), &agent.Config{}, agent.EnvPrefix)
	cmd.Flags().StringVar(file, "config", "", "YAML file with settings")
}

func agentConfig(cmd *cobra.Command, file string) (cfg agent.Config, err error) {
	err = config.Load(&cfg, agent.EnvPrefix, config.Sources{Flags: cmd.Flags(), Environ: environOf(cmd), File: file})
	return cfg, err
}

func limitMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(agentGCPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(agentMemoryLimit)
	}
}

// stayLean releases unused memory periodically until ctx ends.
func stayLean(ctx context.Context, log *slog.Logger) {
	for wait := leanFirst; ; wait = min(2*wait, leanEvery) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if err := releaseUnused(); err != nil {
			log.Debug("unused memory was not given back", "error", err) // no other effect
		}
	}
}

// agentModule returns the module of the site agent. started is called with its listening addresses.
// If the database is damaged, the agent restarts with a new one.
func agentModule(cfg agent.Config, deps agent.Deps, started func(listening []string)) Module {
	return Module{Name: "agent", Start: func(ctx context.Context) (func() error, error) {
		a, err := agent.New(ctx, cfg, deps)
		if err != nil {
			return nil, err
		}
		return serving(func(ready func([]string)) error {
			for {
				err := errors.Join(a.Serve(ctx, ready), a.Close())
				if !errors.Is(err, agent.ErrDamaged) || ctx.Err() != nil {
					return err
				}
				deps.Log.Error("the agent begins again, with a new database", "error", err)
				deps.Registry = telemetry.NewRegistry() // the metrics of the old agent are in the old registry
				if a, err = agent.New(ctx, cfg, deps); err != nil {
					return err
				}
				ready = started
			}
		}, started)
	}}
}

func agentDoctorCommand() *cobra.Command {
	var file, format string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at everything the agent needs, and say what to do",
		Long: `Look at everything the agent needs: data folder, disk, identity, control plane, clock, Podman, update hook.

Give it the settings that the agent has. It works whether or not the agent runs, and fails if it finds a problem.`,
		Example: `  mainstay agent doctor --config /etc/mainstay/agent.yaml
  mainstay agent doctor --server https://edge.example.com:8080 --data /var/lib/mainstay-agent -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return fault.InvalidField("output", "must be table or json, not %q", format)
			}
			cfg, err := agentConfig(cmd, file)
			if err != nil {
				return err
			}
			checks := agent.Diagnose(cmd.Context(), cfg, time.Now)
			if err := printChecks(cmd, format, checks); err != nil {
				return err
			}
			for _, c := range checks {
				if c.Verdict == agent.Problem {
					return fault.New(fault.Unavailable, "%s: %s", c.Name, c.Next)
				}
			}
			return nil
		},
	}
	bindAgentFlags(cmd, &file)
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return cmd
}

func printChecks(cmd *cobra.Command, format string, checks []agent.Check) error {
	if format == "json" {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(checks)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 2, 8, 2, ' ', 0)
	for _, c := range checks {
		_, _ = fmt.Fprintf(
			w, "%s\t%s\t%s\n", c.Name, strings.ToUpper(string(c.Verdict)), c.Detail,
		) // Flush reports failures
		if c.Next != "" {
			_, _ = fmt.Fprintf(w, "\t\t-> %s\n", c.Next)
		}
	}
	return w.Flush()
}
