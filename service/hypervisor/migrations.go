package hypervisor

import (
	"embed"
	"io/fs"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/jobs"
	"github.com/mainstay-infra/mainstay/kit/keyring"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migration is a set of tables and its owner.
type Migration struct {
	Owner string
	Files fs.FS
}

// Migrations returns all tables of the service, in the order in which to create them.
func Migrations() []Migration {
	own, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the folder is compiled in
	}
	return []Migration{
		{"audit", audit.Migrations()},
		{"jobs", jobs.Migrations()},
		{"keyring", keyring.Migrations()},
		{"hypervisor", own},
	}
}
