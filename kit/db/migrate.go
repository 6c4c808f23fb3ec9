package db

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Migrate brings the tables of one owner (a service or a kit package) to the
// newest version. migrations holds goose SQL files, such as 0001_init.sql, at its
// root. Several replicas may migrate at once.
func (d *DB) Migrate(ctx context.Context, owner string, migrations fs.FS) error {
	dialect := goose.DialectSQLite3
	var options []goose.ProviderOption
	if d.engine == Postgres {
		dialect = goose.DialectPostgres
		locker, err := lock.NewPostgresSessionLocker()
		if err != nil {
			return fmt.Errorf("migrations of %s: %w", owner, err)
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	store, err := database.NewStore(dialect, owner+"_migrations")
	if err != nil {
		return fmt.Errorf("migrations of %s: %w", owner, err)
	}
	options = append(options, goose.WithStore(store), goose.WithDisableGlobalRegistry(true))
	provider, err := goose.NewProvider("", d.write.DB, migrations, options...)
	if err != nil {
		return fmt.Errorf("migrations of %s: %w", owner, err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fault.Wrap(fault.Unavailable, err, "database: the tables of %s could not be brought up to date", owner)
	}
	return nil
}
