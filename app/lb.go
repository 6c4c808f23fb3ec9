package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/lb"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/web"
)

// lbModule returns the module of the load balancer. It reloads its document whenever reload
// receives; if reload is nil, only when the file changes. workspace may be nil. started is called with its URL and its
// engine.
func lbModule(
	cfg lb.Config, log *slog.Logger, reload <-chan struct{}, workspace session.Workspace,
	started func(url, engine string),
) Module {
	return Module{Name: "lb", Start: func(ctx context.Context) (func() error, error) {
		tracer, flush, err := tracing(ctx, log, "lb", cfg.OTLPEndpoint)
		if err != nil {
			return nil, err
		}
		svc, err := lb.New(cfg, lb.Deps{
			Log:       log.With("service", "lb"),
			Registry:  telemetry.NewRegistry(),
			Now:       time.Now,
			Tracer:    tracer,
			Console:   web.Console("lb"),
			Reload:    reload,
			Workspace: workspace,
		})
		if err != nil {
			return nil, err
		}
		return serving(func(ready func(string)) error {
			defer flush()
			return svc.Serve(ctx, ready)
		}, func(url string) { started(url, svc.StandsOn()) })
	}}
}

func serveLBCommand() *cobra.Command {
	var logLevel, logFormat string
	cmd := &cobra.Command{
		Use:   "lb",
		Short: "Run the load balancer of this node",
		Long: `Run the load balancer of this node.

--config names the document with the interface, the VIPs and BGP. It is loaded again when it changes and on SIGHUP; a
document that is not valid changes nothing. The kernel keeps balancing when the process ends; --detach stops that.

Each setting of the process can be given as a flag or as an environment variable; a flag beats the environment. A secret
can also be read from a file: set the variable's name with _FILE appended to the file's path. An unknown setting or a
bad value stops the start.`,
		Example: `  LB_API_KEY_FILE=/run/secrets/lb mainstay serve lb --config /etc/mainstay/lb.yaml
  mainstay lb check /etc/mainstay/lb.yaml
  mainstay serve lb --config /etc/mainstay/lb.yaml --detach`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), logFormat, logLevel)
			if err != nil {
				return err
			}
			var cfg lb.Config
			if err := config.Load(
				&cfg, lb.EnvPrefix, config.Sources{Flags: cmd.Flags(), Environ: environOf(cmd)},
			); err != nil {
				return err
			}
			if cfg.Detach {
				return detach(cmd, cfg)
			}
			module := lbModule(cfg, log, hangups(cmd.Context()), nil, logListening(log, "lb"))
			return Run(cmd.Context(), []Module{module}, func() {})
		},
	}
	config.BindFlags(cmd.Flags(), &lb.Config{}, lb.EnvPrefix)
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	return cmd
}

func detach(cmd *cobra.Command, cfg lb.Config) error {
	iface, found, err := lb.Detach(cfg)
	if err != nil {
		return err
	}
	text := "Nothing was attached to %s.\n"
	if found {
		text = "Detached from %s; nothing is left in the kernel.\n"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), text, iface)
	return err
}

// lbCommand returns the commands for the load balancer besides running it. Package cli adds those
// that talk to a running one.
func lbCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lb",
		Short: "Work with the load balancer of a node: VIPs, backends, drains",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(lbCheckCommand())
	return cmd
}

func lbCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a document without putting it into force",
		Long: `Check a document without applying it. All mistakes are reported at once, each with its path and line.

What depends on the machine, such as whether the interface exists, is not checked.`,
		Example: "  mainstay lb check /etc/mainstay/lb.yaml && systemctl reload mainstay-lb",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := configfile.Load(args[0])
			if err != nil {
				return fault.Wrap(fault.Invalid, err, "%s is refused", args[0])
			}
			vips, backends := cfg.Expand(), 0
			for i := range vips {
				backends += len(vips[i].Endpoints)
			}
			_, err = fmt.Fprintf(
				cmd.OutOrStdout(), "%s is valid: %d VIPs, %d backends, interface %s.\n", args[0], len(vips),
				backends, cfg.Interface,
			)
			return err
		},
	}
}

func newLBCredentials() map[string]string {
	return map[string]string{"api_key": auth.NewToken("mlba_"), "readonly_key": auth.NewToken("mlbr_")}
}

func devLB(mode devMode) (devPart, error) {
	cfg, err := devLBConfig(mode)
	if err != nil {
		return devPart{}, err
	}
	return devPart{
		signIn: fmt.Sprintf("a key from %s; its VIPs: %s", mode.credentialsFile, cfg.ConfigFile),
		tokens: devLBTokens(cfg, mode.credentials),
		module: func(started func(url, engine string)) Module {
			return lbModule(cfg, mode.log, nil, mode.ring, started)
		},
	}, nil
}

// devLBConfig returns the load balancer's configuration in dev mode: the environment's, completed
// with dev mode's defaults. The document is created on the first start.
func devLBConfig(mode devMode) (lb.Config, error) {
	var cfg lb.Config
	if err := config.Load(&cfg, lb.EnvPrefix, config.Sources{Environ: mode.environ}); err != nil {
		return cfg, err
	}
	if cfg.Listen == "" {
		cfg.Listen = net.JoinHostPort(mode.host, "9870")
	}
	if !mode.isSet("LB_METRICS_LISTEN") {
		cfg.MetricsListen = net.JoinHostPort(mode.host, "9871")
	}
	if cfg.APIKey == "" && cfg.APIReadonlyKey == "" {
		cfg.APIKey, cfg.APIReadonlyKey = mode.credentials["api_key"], mode.credentials["readonly_key"]
	}
	if cfg.ConfigFile != "" {
		return cfg, nil
	}
	cfg.ConfigFile = filepath.Join(mode.data, "lb", "lb.yaml")
	if err := os.MkdirAll(filepath.Dir(cfg.ConfigFile), 0o700); err != nil {
		return cfg, fault.Wrap(fault.Invalid, err, "cannot make the folder %s", filepath.Dir(cfg.ConfigFile))
	}
	if err := durable.Create(cfg.ConfigFile, fmt.Appendf(nil, devDocument, defaultInterface()), 0o600); err != nil {
		return cfg, fault.Wrap(fault.Invalid, err, "cannot write %s", cfg.ConfigFile)
	}
	return cfg, nil
}

// devLBTokens returns the keys from the credentials, unless the environment replaces them: it may
// have several of each kind, and none of them is for this.
func devLBTokens(cfg lb.Config, credentials map[string]string) map[string]session.Issue {
	if cfg.APIKey != credentials["api_key"] || cfg.APIReadonlyKey != credentials["readonly_key"] {
		return nil
	}
	return map[string]session.Issue{
		session.RoleAdmin: session.Fixed(cfg.APIKey), session.RoleViewer: session.Fixed(cfg.APIReadonlyKey),
	}
}

// devDocument attaches to no interface, since it has no VIPs.
const devDocument = `# The load balancer of this machine. It is loaded again when it changes; check it with: mainstay lb check FILE
interface: %s
vips: []
# Instead, for example:
# vips:
#   - address: 192.0.2.10
#     port: 80
#     backends:
#       - {address: 10.0.0.11, port: 8080}
#       - {address: 10.0.0.12, port: 8080, weight: 2}
`

// defaultInterface returns the interface of the default route, or lo if there is none.
func defaultInterface() string {
	routes, err := os.Open("/proc/net/route")
	if err != nil {
		return "lo"
	}
	defer func() { _ = routes.Close() }() // read only
	return interfaceOf(bufio.NewScanner(routes))
}

// interfaceOf parses /proc/net/route.
func interfaceOf(routes *bufio.Scanner) string {
	for routes.Scan() {
		if columns := strings.Fields(routes.Text()); len(columns) > 7 && columns[1] == "00000000" &&
			columns[7] == "00000000" {
			return columns[0]
		}
	}
	return "lo"
}

// lbEngines returns the requirements of balancing.
func lbEngines() (engines []engine) {
	for _, need := range lb.Needs("/sys/fs/bpf") {
		engines = append(
			engines,
			engine{"Load balancer: " + need.Name, func() (string, bool) { return need.Detail, need.Met },
				"the load balancer answers its API and balances nothing", need.Fix},
		)
	}
	iface := defaultInterface()
	driver, err := os.Readlink(filepath.Join("/sys/class/net", iface, "device", "driver"))
	switch {
	case err == nil:
		driver = "driver " + filepath.Base(driver)
	case errors.Is(err, fs.ErrNotExist):
		driver = "no driver"
	}
	return append(
		engines,
		engine{"Load balancer: interface", func() (string, bool) { return iface + ", " + driver, iface != "lo" },
			"no interface with a default route to try it on", "name another one in its document"},
	)
}
