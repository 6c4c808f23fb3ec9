package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
	"github.com/mainstay-infra/mainstay/service/storage"
)

// storageModule returns the module of the storage gateway. started is called with the URL and the engine.
func storageModule(cfg storage.Config, log *slog.Logger, started func(url, engine string)) Module {
	return Module{Name: "storage", Start: func(ctx context.Context) (func() error, error) {
		svc, err := storage.New(ctx, cfg, storage.Deps{
			Log: log.With("service", "storage"), Registry: telemetry.NewRegistry(), Now: time.Now, Version: telemetry.BuildInfo().Version,
		})
		if err != nil {
			return nil, err
		}
		return serving(func(ready func(string)) error {
			return errors.Join(svc.Serve(ctx, ready), svc.Close())
		}, func(url string) { started(url, svc.StandsOn(ctx)) })
	}}
}

func serveStorageCommand() *cobra.Command {
	var logLevel, logFormat string
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "Run the storage gateway: volumes and their snapshots",
		Long: `Run the storage gateway. It is being built: volumes, snapshots and clones in folders of this host work, over its API.

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
			return Run(cmd.Context(), []Module{storageModule(cfg, log, logListening(log, "storage"))}, func() {})
		},
	}
	config.BindFlags(cmd.Flags(), &storage.Config{}, storage.EnvPrefix)
	cmd.Flags().StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&logFormat, "log-format", "text", "text or json")
	return cmd
}
