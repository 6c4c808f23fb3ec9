package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/edge"
)

// devHeartbeat is short, so that one sees at once what an agent was told, and that
// a site is gone.
const devHeartbeat = 5 * time.Second

// services are those that dev mode runs.
var services = []string{"edge", "hypervisor", "lb"}

func devCommand() *cobra.Command {
	var data, host, logLevel string
	var only []string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run all services on this machine, with embedded databases",
		Long: `Run all services in one process on loopback, each at its default address, with embedded databases.

VMs take QEMU; "mainstay doctor" shows what else this machine lacks. State is kept in one folder. On the first start the credentials are made there, in credentials.json.
Environment variables of the services (see "mainstay serve edge --help") are honoured.`,
		Example: `  mainstay dev
  mainstay dev --data /tmp/try --only edge
  EDGE_LISTEN=127.0.0.1:9080 mainstay dev`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range only {
				if !slices.Contains(services, name) {
					return fault.InvalidField("only", "there is no service %q; there are: %s", name, strings.Join(services, ", "))
				}
			}
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), "text", logLevel)
			if err != nil {
				return err
			}
			creds, credsPath, err := loadCredentials(data)
			if err != nil {
				return err
			}
			table := &strings.Builder{}
			w := tabwriter.NewWriter(table, 2, 8, 2, ' ', 0)
			line := func(columns ...string) { _, _ = fmt.Fprintln(w, "  "+strings.Join(columns, "\t")) } // a Builder does not fail
			line("SERVICE", "ADDRESS", "STANDS ON", "SIGN IN")
			var modules []Module
			if len(only) == 0 || slices.Contains(only, "edge") {
				cfg, err := devEdgeConfig(cmd, data, host, creds.Edge)
				if err != nil {
					return err
				}
				modules = append(modules, edgeModule(cfg, log, reloading{}, func(url, engine string) {
					line("edge", url, engine, fmt.Sprintf("user %s, or a token, from %s", cfg.AdminUsername, credsPath))
				}))
			}
			if len(only) == 0 || slices.Contains(only, "lb") {
				cfg, err := devLBConfig(cmd, data, host, creds.LB)
				if err != nil {
					return err
				}
				modules = append(modules, lbModule(cfg, log, nil, func(url, engine string) {
					line("lb", url, engine, fmt.Sprintf("a key from %s; its VIPs: %s", credsPath, cfg.ConfigFile))
				}))
			}
			if len(only) == 0 || slices.Contains(only, "hypervisor") {
				cfg, err := devHypervisorConfig(cmd, data, host, creds.Hypervisor)
				if err != nil {
					return err
				}
				modules = append(modules, hypervisorModule(cfg, log, nil, nil, func(url, engine string) {
					line("hypervisor", url, engine, "the token from "+credsPath)
				}))
			}
			return addressTaken(Run(cmd.Context(), modules, func() {
				_ = w.Flush()
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "Mainstay %s is running. Stop it with Ctrl-C.\n\n%s\nOpen an address for the console; the API reference is at /docs.\n%s", telemetry.BuildInfo().Version, table, firstSteps(os.Args[0], only))
			}))
		},
	}
	cmd.Flags().StringVar(&data, "data", ".mainstay", "folder for all state")
	cmd.Flags().StringVar(&host, "host", "127.0.0.1", "address to listen on")
	cmd.Flags().StringSliceVar(&only, "only", nil, "run only these services, for example edge,lb")
	cmd.Flags().StringVar(&logLevel, "log-level", "warn", "debug, info, warn or error")
	return cmd
}

// addressTaken adds to an error what to do if it is that another program has the address.
func addressTaken(err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	return fmt.Errorf("%w; another program listens there: stop it, or set EDGE_LISTEN, LB_LISTEN, LB_METRICS_LISTEN or HYPERVISOR_LISTEN to another address", err)
}

// firstSteps are commands to try, in the folder and by the name that dev mode was started
// with: the program need not be on PATH yet.
func firstSteps(program string, only []string) string {
	var steps []string
	for _, s := range []struct{ service, command string }{
		{"edge", program + " edge simulate --sites 20"},
		{"hypervisor", program + " image build-demo && " + program + " vm run demo"},
	} {
		if len(only) == 0 || slices.Contains(only, s.service) {
			steps = append(steps, "  "+s.command+"\n")
		}
	}
	if len(steps) == 0 {
		return ""
	}
	return "Try in another terminal, in this folder:\n\n" + strings.Join(steps, "")
}

// devEdgeConfig is the edge control plane's configuration in dev mode: the
// environment's, completed with what dev mode decides.
func devEdgeConfig(cmd *cobra.Command, data, host string, creds edgeCredentials) (edge.Config, error) {
	var cfg edge.Config
	environ := cmd.Context().Value(environKey{}).([]string)
	if err := config.Load(&cfg, edge.EnvPrefix, config.Sources{Environ: environ}); err != nil {
		return cfg, err
	}
	isSet := func(name string) bool { return isSetIn(environ, name) }
	if !isSet("EDGE_LISTEN") {
		cfg.Listen = net.JoinHostPort(host, "8080")
	}
	if !isSet("EDGE_DATA") {
		cfg.Data = filepath.Join(data, "edge")
	}
	if !isSet("EDGE_HEARTBEAT_INTERVAL") {
		cfg.HeartbeatInterval = devHeartbeat
	}
	if !isSet("MAINSTAY_ALLOW_PRIVATE_TARGETS") {
		cfg.AllowPrivateTargets = true // routes to programs on this machine are what one tries first
	}
	for setting, made := range map[*string]string{&cfg.AdminToken: creds.AdminToken, &cfg.ViewerToken: creds.ViewerToken, &cfg.EnrollmentToken: creds.EnrollmentToken} {
		if *setting == "" {
			*setting = made
		}
	}
	if cfg.AdminUsername == "" && cfg.AdminPassword == "" {
		cfg.AdminUsername, cfg.AdminPassword = creds.AdminUsername, creds.AdminPassword
	}
	return cfg, nil
}

func isSetIn(environ []string, name string) bool {
	return slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, name+"=") })
}
