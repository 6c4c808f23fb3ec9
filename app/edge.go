package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/web"
)

// devHeartbeat is short, so that changes for an agent, and the loss of a site, show quickly.
const devHeartbeat = 5 * time.Second

// reloading defines when and how the edge control plane reloads its credentials. The zero value
// means never.
type reloading struct {
	when <-chan struct{}
	load func() (edge.Config, error)
}

// edgeModule returns the module of the edge control plane. workspace may be nil. started is called with its URL and its
// engine.
func edgeModule(
	cfg edge.Config, log *slog.Logger, again reloading, workspace session.Workspace, started func(url, engine string),
) Module {
	return Module{Name: "edge", Start: func(ctx context.Context) (func() error, error) {
		tracer, flush, err := tracing(ctx, log, "edge", cfg.OTLPEndpoint)
		if err != nil {
			return nil, err
		}
		svc, err := edge.New(ctx, cfg, edge.Deps{
			Log:       log.With("service", "edge"),
			Registry:  telemetry.NewRegistry(),
			Now:       time.Now,
			Tracer:    tracer,
			Console:   web.Console("edge"),
			Workspace: workspace,
		})
		if err != nil {
			return nil, err
		}
		routine.Go(log, "edge reload", func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-again.when:
				}
				changed, err := again.load()
				if err == nil {
					err = svc.Reload(ctx, changed)
				}
				if err != nil {
					log.Error("the settings cannot be read again; those in use stay", "service", "edge", "error", err)
					continue
				}
				log.Info(
					"credentials are read again; other settings take a restart, and TLS files are read when they change",
					"service", "edge",
				)
			}
		})
		return serving(func(ready func(string)) error {
			defer flush()
			return errors.Join(svc.Serve(ctx, ready), svc.Close())
		}, func(url string) { started(url, svc.StandsOn()) })
	}}
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
			environ := environOf(cmd)
			load := func() (cfg edge.Config, err error) {
				err = config.Load(
					&cfg, edge.EnvPrefix, config.Sources{Flags: cmd.Flags(), Environ: environ, File: file},
				)
				return cfg, err
			}
			cfg, err := load()
			if err == nil && cfg.Database == "" {
				// A process that cannot start must not leave credentials next to another process's
				// data.
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
			module := edgeModule(cfg, log, reloading{hangups(cmd.Context()), reload}, nil, logListening(log, "edge"))
			return Run(cmd.Context(), []Module{module}, func() {})
		},
	}
	config.BindFlags(cmd.Flags(), &edge.Config{}, edge.EnvPrefix)
	cmd.Flags().StringVar(&file, "config", "", "YAML file with settings")
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	return cmd
}

func newEdgeCredentials() map[string]string {
	return map[string]string{
		"admin_username": "admin", "admin_password": auth.NewToken(""), "admin_token": auth.NewToken("madm_"),
		"viewer_token": auth.NewToken("mvwr_"), "enrollment_token": auth.NewToken("menr_"),
	}
}

// firstCredentials sets credentials if none are configured and nobody could sign in. They are
// generated on the first start and stored in the data directory.
func firstCredentials(cfg *edge.Config, log *slog.Logger) error {
	if cfg.AdminToken != "" || cfg.AdminPassword != "" || cfg.OIDC.Issuer != "" {
		return nil
	}
	all, path, err := loadCredentials(cfg.Data)
	if err != nil {
		return err
	}
	log.Warn("no credentials are configured; those in the file are used", "service", "edge", "file", path)
	creds := all["edge"]
	cfg.AdminUsername, cfg.AdminPassword = creds["admin_username"], creds["admin_password"]
	setTokens(cfg, creds)
	return nil
}

// setTokens sets the tokens that are not configured.
func setTokens(cfg *edge.Config, creds map[string]string) {
	cfg.AdminToken = cmp.Or(cfg.AdminToken, creds["admin_token"])
	cfg.ViewerToken = cmp.Or(cfg.ViewerToken, creds["viewer_token"])
	cfg.EnrollmentToken = cmp.Or(cfg.EnrollmentToken, creds["enrollment_token"])
}

func devEdge(mode devMode) (devPart, error) {
	cfg, err := devEdgeConfig(mode)
	if err != nil {
		return devPart{}, err
	}
	return devPart{
		signIn: fmt.Sprintf("user %s, or a token, from %s", cfg.AdminUsername, mode.credentialsFile),
		tokens: map[string]session.Issue{
			session.RoleAdmin: session.Fixed(cfg.AdminToken), session.RoleViewer: session.Fixed(cfg.ViewerToken),
		},
		module: func(started func(url, engine string)) Module {
			return edgeModule(cfg, mode.log, reloading{}, mode.ring, started)
		},
	}, nil
}

// devEdgeConfig returns the edge control plane's configuration in dev mode: the environment's,
// completed with dev mode's defaults.
func devEdgeConfig(mode devMode) (edge.Config, error) {
	var cfg edge.Config
	if err := config.Load(&cfg, edge.EnvPrefix, config.Sources{Environ: mode.environ}); err != nil {
		return cfg, err
	}
	if !mode.isSet("EDGE_LISTEN") {
		cfg.Listen = net.JoinHostPort(mode.host, "8080")
	}
	if !mode.isSet("EDGE_DATA") {
		cfg.Data = filepath.Join(mode.data, "edge")
	}
	if !mode.isSet("EDGE_HEARTBEAT_INTERVAL") {
		cfg.HeartbeatInterval = devHeartbeat
	}
	if !mode.isSet("MAINSTAY_ALLOW_PRIVATE_TARGETS") {
		cfg.AllowPrivateTargets = true // first experiments usually have routes to programs on this machine
	}
	setTokens(&cfg, mode.credentials)
	if cfg.AdminUsername == "" && cfg.AdminPassword == "" {
		cfg.AdminUsername, cfg.AdminPassword = mode.credentials["admin_username"], mode.credentials["admin_password"]
	}
	return cfg, nil
}

// edgeEngines returns the engines that the edge control plane can use, and tools to inspect its
// output.
func edgeEngines() []engine {
	return []engine{
		{
			"PostgreSQL", postgres,
			"no local PostgreSQL to run several replicas on, or to test with; SQLite needs nothing",
			"apt-get install postgresql",
		},
		{
			"OpenSSL",
			onPath("openssl"),
			"no independent look at certificates and revocation lists",
			"apt-get install openssl",
		},
	}
}

// postgres finds the server, which Debian does not put on PATH.
func postgres() (where string, ok bool) {
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); err == nil && len(found) > 0 {
		return found[len(found)-1], true
	}
	return onPath("postgres")()
}
