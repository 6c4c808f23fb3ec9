// Package billing counts what VMs use, and makes invoices of it.
//
//	meter.go    counts: what the daemon tells about VMs, its events, and what VMs have sent
//	usage.go    what VMs have used in a period, and what it costs
//	invoice.go  invoices of months
//	focus.go    usage and invoices as CSV, with the columns of FOCUS
//	tariff/     the rules, as plain functions
//
// # What is counted
//
// Processors and memory count while the VM's process runs (also while it is paused, since it keeps its
// memory), at the size that the process has. The disk counts while the VM exists. What a VM sends counts by
// the daemon's counter. The package record stores this as tracks, one for each run and one for the disk.
// A track consists of segments, which end at months' edges and where the size or the price changes.
//
// # Invariants
//
//   - A run has its start as its key, so no second counts twice, whatever is repeated.
//   - A run counts until the daemon's event says that it ended, or until it was last seen. A VM whose host
//     does not answer counts on only once it was seen again in the same run.
//   - An event's id is stored in the transaction that counts it. What happened while this service was
//     down is counted from the daemon's events.
//   - If the daemon may have been down before it told that a run ended, the run counts until the daemon
//     last measured it.
//   - An invoice with a number never changes.
//
// It imports caller, driver, record and tariff.
package billing

import (
	"log/slog"
	"time"

	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Config holds the dependencies of a Manager.
type Config struct {
	Store  *record.Store
	Driver *driver.Driver
	Log    *slog.Logger
	Now    func() time.Time
}

// Manager counts usage and makes invoices.
type Manager struct {
	store  *record.Store
	driver *driver.Driver
	log    *slog.Logger
	now    func() time.Time
}

// New returns a Manager.
func New(c Config) *Manager {
	return &Manager{store: c.Store, driver: c.Driver, log: c.Log, now: c.Now}
}

// NoTenant is the tenant id of VMs without a tenant. It is not a valid name of a tenant.
const NoTenant = "-"

// TenantID returns the tenant id of a tenant, which may be empty.
func TenantID(tenant string) string {
	if tenant == "" {
		return NoTenant
	}
	return tenant
}

// TenantOf returns the tenant with an id.
func TenantOf(id string) string {
	if id == NoTenant {
		return ""
	}
	return id
}
