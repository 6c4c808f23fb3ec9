package record

import (
	"embed"
	"io/fs"

	"github.com/mainstay-infra/mainstay/kit/db"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the migrations of the service's own tables, for db.DB.Migrate. Apply them after those of package
// operation.
func Migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }
