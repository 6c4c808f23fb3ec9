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
	"github.com/mainstay-infra/mainstay/service/vm"
	"github.com/mainstay-infra/mainstay/web"
)

// vmModule returns the module of VM management. opened, if not nil, is called before started, which is
// called with the URL and the engine. workspace may be nil.
func vmModule(
	cfg vm.Config, log *slog.Logger, workspace session.Workspace, opened func(*vm.Service),
	started func(url, engine string),
) Module {
	return Module{Name: "vm", Start: func(ctx context.Context) (func() error, error) {
		tracer, flush, err := tracing(ctx, log, "vm", cfg.OTLPEndpoint)
		if err != nil {
			return nil, err
		}
		svc, err := vm.New(ctx, cfg, vm.Deps{
			Log: log.With("service", "vm"), Registry: telemetry.NewRegistry(), Now: time.Now, Tracer: tracer,
			Console: web.Console("vm"), Workspace: workspace,
		})
		if err != nil {
			return nil, err
		}
		if opened != nil {
			opened(svc)
		}
		return serving(func(ready func(string)) error {
			defer flush()
			return errors.Join(svc.Serve(ctx, ready), svc.Close())
		}, func(url string) { started(url, svc.StandsOn(ctx)) })
	}}
}

func serveVMCommand() *cobra.Command {
	var logLevel, logFormat string
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Run VM management: users, tenants and their virtual machines",
		Long: `Run VM management, through which people own virtual machines. The VMs run on the hypervisor daemon at --hypervisor-url
('mainstay serve hypervisor'), or, with --fleet, on the hosts of the fleet whose registry answers there.

Passwords are checked by the service (--auth local), by the host (--auth pam, through mainstay-pam), or by both. The
first admin comes from --admin-username and VM_ADMIN_PASSWORD_FILE, or from the host's groups root, wheel, sudo and adm.

With PostgreSQL (--database), several replicas may run; they share secret-key and jwt-secret.

Each setting can be given as a flag or as an environment variable; a flag beats the environment. A secret can also be
read from a file: set the variable's name with _FILE appended to the file's path. An unknown setting or a bad value
stops the start.`,
		Example: `  VM_ADMIN_PASSWORD_FILE=/run/secrets/admin mainstay serve vm --admin-username admin --data /var/lib/mainstay/vm
  VM_HYPERVISOR_TOKEN_FILE=/run/secrets/hypervisor mainstay serve vm --auth pam --hypervisor-url https://registry:7070 --fleet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), logFormat, logLevel)
			if err != nil {
				return err
			}
			var cfg vm.Config
			if err := config.Load(&cfg, vm.EnvPrefix, config.Sources{Flags: cmd.Flags(), Environ: environOf(cmd)}); err != nil {
				return err
			}
			return Run(cmd.Context(), []Module{vmModule(cfg, log, nil, nil, logListening(log, "vm"))}, func() {})
		},
	}
	config.BindFlags(cmd.Flags(), &vm.Config{}, vm.EnvPrefix)
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	return cmd
}

func newVMCredentials() map[string]string {
	return map[string]string{"username": "admin", "password": auth.NewToken("")}
}

func devVM(mode devMode) (devPart, error) {
	cfg, err := devVMConfig(mode)
	if err != nil {
		return devPart{}, err
	}
	// The console of another service signs people in as the admin of the credentials, by a login like
	// any other. Once that admin has another password or a second factor, people sign in here.
	var running *vm.Service
	admin := func(ctx context.Context) (string, error) {
		return running.Token(ctx, cfg.AdminUsername, cfg.AdminPassword)
	}
	return devPart{
		signIn: "username and password from " + mode.credentialsFile,
		tokens: map[string]session.Issue{session.RoleAdmin: admin},
		module: func(started func(url, engine string)) Module {
			return Module{Name: "vm", Start: func(ctx context.Context) (func() error, error) {
				if url := mode.urls["hypervisor"]; url != "" && !mode.isSet("VM_HYPERVISOR_URL") {
					cfg.HypervisorURL = url // it has started before
				}
				return vmModule(cfg, mode.log, mode.ring, func(s *vm.Service) { running = s }, started).Start(ctx)
			}}
		},
	}, nil
}

// devVMConfig returns the configuration in dev mode: the environment's, completed with dev mode's
// defaults. It stands on the hypervisor daemon of dev mode.
func devVMConfig(mode devMode) (vm.Config, error) {
	var cfg vm.Config
	if err := config.Load(&cfg, vm.EnvPrefix, config.Sources{Environ: mode.environ}); err != nil {
		return cfg, err
	}
	if !mode.isSet("VM_LISTEN") {
		cfg.Listen = net.JoinHostPort(mode.host, "3000")
	}
	if !mode.isSet("VM_DATA") {
		cfg.Data = filepath.Join(mode.data, "vm")
	}
	if cfg.AdminUsername == "" {
		cfg.AdminUsername, cfg.AdminPassword = mode.credentials["username"], mode.credentials["password"]
	}
	if !mode.isSet("VM_ALLOW_PRIVATE_TARGETS") {
		cfg.AllowPrivateTargets = true // first experiments usually have webhooks to programs on this machine
	}
	cfg.HypervisorToken = cmp.Or(cfg.HypervisorToken, mode.others["hypervisor"]["token"])
	return cfg, nil
}
