package db

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Migration is the tables of one owner: a service or a kit package.
type Migration struct {
	Owner string
	Files fs.FS // as Migrate takes them
}

// EmbeddedMigrations returns the folder "migrations" of files that a package embeds, for Migrate. It
// panics if there is none.
func EmbeddedMigrations(files embed.FS) fs.FS {
	folder, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err)
	}
	return folder
}

// Migrate upgrades the tables of one owner (a service or a kit package) to the newest version.
// migrations holds goose SQL files, such as 0001_init.sql, at its root. Several replicas may
// migrate at the same time. Migrate refuses a database whose tables are newer than migrations: an
// older program would misread them.
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
	} else {
		migrations = liteDialect{migrations}
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
	current, newest, err := provider.GetVersions(ctx)
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "database: the version of the tables of %s cannot be read%s", owner, hint(err))
	}
	if current > newest {
		return fault.New(
			fault.Conflict,
			"database: the tables of %s are at version %d, and this program knows %d at most; "+
				"run the newer program, or restore the backup from before the upgrade",
			owner,
			current,
			newest,
		).WithCode("newer_schema")
	}
	if _, err := provider.Up(ctx); err != nil {
		return fault.Wrap(fault.Unavailable, err, "database: the tables of %s could not be brought up to date%s", owner, hint(err))
	}
	return nil
}
