package hypervisor

import (
	"embed"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/keyring"
	"github.com/mainstay-infra/mainstay/kit/session"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns all tables of the service, in the order in which to create them.
func Migrations() []db.Migration {
	return []db.Migration{
		{Owner: "audit", Files: audit.Migrations()},
		{Owner: "jobs", Files: jobs.Migrations()},
		{Owner: "keyring", Files: keyring.Migrations()},
		{Owner: "session", Files: session.Migrations()},
		{Owner: "hypervisor", Files: db.EmbeddedMigrations(migrationFiles)},
	}
}
