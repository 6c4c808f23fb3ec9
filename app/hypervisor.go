package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
	"github.com/mainstay-infra/mainstay/service/hypervisor/plan"
	"github.com/mainstay-infra/mainstay/web"
)

// hypervisorModule returns the module of the hypervisor daemon. It reloads credentials whenever
// reload receives, those in the settings by calling settings; both may be nil, and so may
// workspace. started is called
// with its URL and its engine.
func hypervisorModule(
	cfg hypervisor.Config, log *slog.Logger, reload <-chan struct{}, settings func() (hypervisor.Config, error),
	workspace session.Workspace, started func(url, engine string),
) Module {
	return Module{Name: "hypervisor", Start: func(ctx context.Context) (func() error, error) {
		tracer, flush, err := tracing(ctx, log, "hypervisor", cfg.OTLPEndpoint)
		if err != nil {
			return nil, err
		}
		svc, err := hypervisor.New(ctx, cfg, hypervisor.Deps{
			Log:       log.With("service", "hypervisor"),
			Registry:  telemetry.NewRegistry(),
			Now:       time.Now,
			Tracer:    tracer,
			Console:   web.Console("hypervisor"),
			Reload:    reload,
			Settings:  settings,
			Workspace: workspace,
		})
		if err != nil {
			return nil, err
		}
		return serving(func(ready func(string)) error {
			defer flush()
			return errors.Join(svc.Serve(ctx, ready), svc.Close())
		},
			func(url string) { started(url, svc.StandsOn(ctx)) })
	}}
}

func serveHypervisorCommand() *cobra.Command {
	var logLevel, logFormat string
	cmd := &cobra.Command{
		Use:   "hypervisor",
		Short: "Run the hypervisor daemon of this host, and the registry of a fleet",
		Long: `Run the hypervisor daemon of this host. VMs keep running while the daemon is down; it reattaches when it starts.

--config names a TOML document with policy, callers, confinement, storage and networks. With --registry the host
joins the fleet whose registry answers there; every daemon can be a registry.

SIGHUP has it read credentials again: the file of HYPERVISOR_TOKEN_FILE, and the document's tokens, client certificates
and OIDC provider. Other settings need a restart. Without any credentials it listens on loopback addresses only, unless
--insecure is given.

Each setting of the process can be given as a flag or as an environment variable; a flag beats the environment. A secret
can also be read from a file: set the variable's name with _FILE appended to the file's path. An unknown setting or a
bad value stops the start.`,
		Example: `  HYPERVISOR_TOKEN_FILE=/run/secrets/hypervisor mainstay serve hypervisor --data /var/lib/mainstay/hypervisor
  mainstay serve hypervisor --config /etc/mainstay/hypervisor.toml --listen 10.0.0.5:7070
  mainstay serve hypervisor --registry https://registry:7070 --node-labels rack=a,disk=nvme`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), logFormat, logLevel)
			if err != nil {
				return err
			}
			spareMemory() // it is for VMs
			environ := environOf(cmd)
			settings := func() (cfg hypervisor.Config, err error) {
				err = config.Load(&cfg, hypervisor.EnvPrefix, config.Sources{Flags: cmd.Flags(), Environ: environ})
				return cfg, err
			}
			cfg, err := settings()
			if err != nil {
				return err
			}
			module := hypervisorModule(cfg, log, hangups(cmd.Context()), settings, nil, logListening(log, "hypervisor"))
			return Run(cmd.Context(), []Module{module}, func() {})
		},
	}
	config.BindFlags(cmd.Flags(), &hypervisor.Config{}, hypervisor.EnvPrefix)
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	return cmd
}

func newHypervisorCredentials() map[string]string {
	return map[string]string{"token": auth.NewToken("mhva_"), "fleet_token": auth.NewToken("mhvf_")}
}

func devHypervisor(mode devMode) (devPart, error) {
	cfg, err := devHypervisorConfig(mode)
	if err != nil {
		return devPart{}, err
	}
	return devPart{
		signIn: "the token from " + mode.credentialsFile,
		tokens: map[string]session.Issue{session.RoleAdmin: session.Fixed(cfg.Token)},
		module: func(started func(url, engine string)) Module {
			return hypervisorModule(cfg, mode.log, nil, nil, mode.ring, started)
		},
	}, nil
}

// devHypervisorConfig returns the daemon's configuration in dev mode: the environment's, completed
// with dev mode's defaults. It is a fleet of one host.
func devHypervisorConfig(mode devMode) (hypervisor.Config, error) {
	var cfg hypervisor.Config
	if err := config.Load(&cfg, hypervisor.EnvPrefix, config.Sources{Environ: mode.environ}); err != nil {
		return cfg, err
	}
	if !mode.isSet("HYPERVISOR_LISTEN") {
		cfg.Listen = net.JoinHostPort(mode.host, "7070")
	}
	if !mode.isSet("HYPERVISOR_DATA") {
		cfg.Data = filepath.Join(mode.data, "hypervisor")
	}
	if cfg.Token == "" && cfg.ConfigFile == "" {
		cfg.Token = mode.credentials["token"]
	}
	if _, port, err := net.SplitHostPort(
		cfg.Listen,
	); err == nil && port != "0" && cfg.Registry == "" && cfg.TLSCert == "" &&
		!cfg.TLSSelfSigned {
		cfg.Registry = "http://" + cfg.Listen
		cfg.FleetToken = cmp.Or(cfg.FleetToken, mode.credentials["fleet_token"])
	}
	return cfg, nil
}

// hypervisorEngines returns the programs that run VMs, and their requirements.
func hypervisorEngines() []engine {
	return []engine{
		{"QEMU", onPath("qemu-system-x86_64"), "no virtual machines", "apt-get install qemu-system-x86"},
		{"qemu-img", onPath("qemu-img"), "no disks, images and backups of VMs", "apt-get install qemu-utils"},
		{"UEFI firmware for VMs", func() (string, bool) {
			found := plan.Firmware()
			return found, found != ""
		}, "VMs boot by BIOS only", "apt-get install ovmf"},
		{"Demo guest", func() (string, bool) {
			missing := demo.Missing()
			return "what it is built of", missing == ""
		}, "no 'mainstay image build-demo', a guest to try VMs with", "apt-get install " + demo.Packages},
		{"gVisor", onPath("runsc"), "no sandboxes", "see https://gvisor.dev/docs/user_guide/install/"},
		{
			"Firecracker",
			onPath("firecracker"),
			"no VMs with the backend firecracker",
			"see https://github.com/firecracker-microvm/firecracker/releases",
		},
		{
			"Cloud Hypervisor",
			onPath("cloud-hypervisor"),
			"no VMs with the backend cloud-hypervisor",
			"see https://github.com/cloud-hypervisor/cloud-hypervisor/releases",
		},
	}
}
