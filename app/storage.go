package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/cephlab"
	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/session"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/storage"
	"github.com/mainstay-infra/mainstay/web"
)

// storageModule returns the module of the storage gateway. started is called with the URL and the engine. workspace may
// be nil.
func storageModule(
	cfg storage.Config, log *slog.Logger, workspace session.Workspace, started func(url, engine string),
) Module {
	return Module{Name: "storage", Start: func(ctx context.Context) (func() error, error) {
		svc, err := storage.New(ctx, cfg, storage.Deps{
			Log: log.With("service", "storage"), Registry: telemetry.NewRegistry(), Now: time.Now, Version: telemetry.BuildInfo().Version,
			Console: web.Console("storage"), Workspace: workspace,
		})
		if err != nil {
			return nil, err
		}
		return serving(func(ready func(string)) error {
			return errors.Join(svc.Serve(ctx, ready), svc.Close())
		}, func(url string) { started(url, svc.StandsOn(ctx)) })
	}}
}

// storageCommand returns the commands for the host of the storage gateway. Package cli adds them to those that talk to
// it.
func storageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "storage", Short: "Work with the storage gateway"}
	buckets := &cobra.Command{Use: "bucket", Short: "Buckets of object gateways"}
	buckets.AddCommand(bucketKeysCommand())
	cmd.AddCommand(buckets)
	return cmd
}

func bucketKeysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys BUCKET",
		Short: "Print the keys of a bucket, on the gateway's host",
		Long: `Print the keys of a bucket that the gateway has made, as JSON. It works on the gateway's host only, beside the service:
it reads the database and the secret key in the data folder, or where the environment variables of the service say. No
request over the network answers with keys.

The bucket is named by its name or, if several tenants have one of that name, its ID.`,
		Example: `  mainstay storage bucket keys logs --data /var/lib/mainstay/storage`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var cfg storage.Config
			if err := config.Load(
				&cfg, storage.EnvPrefix, config.Sources{Flags: cmd.Flags(), Environ: environOf(cmd)},
			); err != nil {
				return err
			}
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), "text", "warn")
			if err != nil {
				return err
			}
			keys, err := storage.BucketKeys(cmd.Context(), cfg, log, args[0])
			if err != nil {
				return err
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(keys)
		},
	}
	cmd.Flags().String("data", "", "data folder of the service (environment: STORE_DATA) (default .mainstay/storage)")
	return cmd
}

func serveStorageCommand() *cobra.Command {
	var logLevel, logFormat string
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "Run the storage gateway: volumes, snapshots, buckets and backups",
		Long: `Run the storage gateway. It is being built: volumes, snapshots and clones in Ceph clusters and in folders of this host,
buckets in Ceph's object gateway, and backups in buckets work, over its API, gRPC and 'mainstay storage', and most of
that in the console.

Without --auth-required everybody on this machine is the admin anonymous. With it, requests carry a JSON Web Token that
is signed with HS256 and STORE_JWT_SECRET, with the claims sub, role (viewer, operator or admin), tenant and exp.

With PostgreSQL (--database), several replicas may run; they share secret-key and jwt-secret.

Each setting can be given as a flag or as an environment variable; a flag beats the environment. A secret can also be
read from a file: set the variable's name with _FILE appended to the file's path. An unknown setting or a bad value
stops the start.`,
		Example: `  mainstay serve storage --data /var/lib/mainstay/storage
  STORE_JWT_SECRET_FILE=/run/secrets/jwt mainstay serve storage --auth-required --directories exports=/srv/exports`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := telemetry.NewLogger(cmd.ErrOrStderr(), logFormat, logLevel)
			if err != nil {
				return err
			}
			var cfg storage.Config
			if err := config.Load(
				&cfg, storage.EnvPrefix, config.Sources{Flags: cmd.Flags(), Environ: environOf(cmd)},
			); err != nil {
				return err
			}
			spareMemory() // blocks of backups are garbage soon
			return Run(cmd.Context(), []Module{storageModule(cfg, log, nil, logListening(log, "storage"))}, func() {})
		},
	}
	config.BindFlags(cmd.Flags(), &storage.Config{}, storage.EnvPrefix)
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	return cmd
}

// devTokenLife is how long the token of dev mode is valid: the secret that it is signed with is beside it, so an
// earlier end would protect nothing.
const devTokenLife = 20 * 365 * 24 * time.Hour

// newStorageCredentials generates the secret that tokens are signed with, and the token of an admin without a tenant.
// Others can be signed with the secret.
func newStorageCredentials() map[string]string {
	secret := auth.NewToken("")
	// Neither fails: the secret is long enough, and the claims are text.
	sessions, _ := auth.NewSessions(time.Now, nil, []byte(secret))
	token, _, _ := sessions.Issue(auth.Claims{Subject: "admin", Role: "admin"}, devTokenLife)
	return map[string]string{"jwt_secret": secret, "token": token}
}

func devStorage(mode devMode) (devPart, error) {
	cfg, err := devStorageConfig(mode)
	if err != nil {
		return devPart{}, err
	}
	signIn := "the token from " + mode.credentialsFile
	switch {
	case !cfg.AuthRequired:
		signIn = "nobody is asked"
	case cfg.JWTSecret != mode.credentials["jwt_secret"]:
		signIn = "a token signed with STORE_JWT_SECRET"
	}
	return devPart{
		signIn: signIn,
		tokens: devStorageTokens(cfg),
		module: func(started func(url, engine string)) Module {
			return storageModule(cfg, mode.log, mode.ring, started)
		},
	}, nil
}

// devStorageTokens returns the tokens with which the console of another service signs people in. Each is issued when it
// is asked for.
func devStorageTokens(cfg storage.Config) map[string]session.Issue {
	if !cfg.AuthRequired {
		return nil // nobody needs one
	}
	tokens := map[string]session.Issue{}
	for _, role := range []string{session.RoleAdmin, session.RoleViewer} {
		tokens[role] = func(context.Context) (string, error) {
			sessions, err := auth.NewSessions(time.Now, nil, []byte(cfg.JWTSecret))
			if err != nil {
				return "", err
			}
			token, _, err := sessions.Issue(auth.Claims{Subject: role, Role: role}, session.Life)
			return token, err
		}
	}
	return tokens
}

// devStorageConfig returns the configuration in dev mode: the environment's, completed with dev mode's
// defaults. Volumes are in a folder below that of dev mode.
func devStorageConfig(mode devMode) (storage.Config, error) {
	var cfg storage.Config
	if err := config.Load(&cfg, storage.EnvPrefix, config.Sources{Environ: mode.environ}); err != nil {
		return cfg, err
	}
	if !mode.isSet("STORE_LISTEN") {
		cfg.Listen = net.JoinHostPort(mode.host, "5110")
	}
	if !mode.isSet("STORE_GRPC_ADDR") {
		cfg.GRPCAddr = net.JoinHostPort(mode.host, "5111")
	}
	if !mode.isSet("STORE_DATA") {
		cfg.Data = filepath.Join(mode.data, "storage")
	}
	if !mode.isSet("STORE_AUTH_REQUIRED") {
		cfg.AuthRequired = true
	}
	if cfg.JWTSecret == "" {
		cfg.JWTSecret = mode.credentials["jwt_secret"]
	}
	devCeph(&cfg, mode)
	return cfg, nil
}

// devCeph names the cluster of `mainstay storage dev-ceph` in the configuration, if there is one in the folder of dev
// mode and the environment names none. It need not run: the gateway notices when it does.
func devCeph(cfg *storage.Config, mode devMode) {
	if mode.isSet("STORE_CEPH_CLUSTERS") || mode.isSet("STORE_OBJECT_GATEWAYS") {
		return
	}
	l, err := cephlab.Open(filepath.Join(mode.data, "ceph"))
	switch {
	case fault.Is(err, fault.NotFound):
	case err != nil:
		mode.log.Warn("the cluster of dev-ceph is not used; does it belong to root?", "error", err)
	case l.Ready():
		cfg.CephClusters, cfg.ObjectGateways = []string{l.Clusters()}, []string{l.Gateways()}
	}
}
