package record

import (
	"context"
	"errors"
	"time"

	"github.com/shopspring/decimal"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
)

// UsageFilter selects usage. Empty fields select all.
type UsageFilter struct {
	From, To time.Time // both must be set
	VM       string    // its name or id
	Tenant   *string   // empty: the VMs without a tenant
}

func (f *UsageFilter) scope(ctx context.Context) db.Scope {
	from, to := db.At(f.From), db.At(f.To)
	scope := caller.From(ctx).Scope().And("from_at < ? AND (to_at > ? OR from_at >= ?)", to, from, from)
	if f.VM != "" {
		scope = scope.And("(vm_name = ? OR vm_id = ?)", f.VM, f.VM)
	}
	if f.Tenant != nil {
		scope = scope.And("tenant = ?", *f.Tenant)
	}
	return scope
}

// UsedVMs lists the ids of VMs in the caller's scope that have usage, starting after an id.
func (s *Store) UsedVMs(ctx context.Context, f UsageFilter, after string, limit int) (ids []string, err error) {
	condition, args := f.scope(ctx).And("vm_id > ?", after).SQL()
	return ids, s.db.Select(ctx, &ids, "SELECT DISTINCT vm_id FROM usage_segments WHERE "+condition+
		" ORDER BY vm_id LIMIT ?", append(args, limit)...)
}

// UsageOf lists the usage of VMs in the caller's scope, by VM and time.
func (s *Store) UsageOf(ctx context.Context, f UsageFilter, vms []string) (all []Usage, err error) {
	if len(vms) == 0 {
		return nil, nil
	}
	f.VM = "" // all of a VM that has had the name
	condition, args := f.scope(ctx).SQL()
	query, args, err := db.In("SELECT * FROM usage_segments WHERE "+condition+" AND vm_id IN (?) ORDER BY vm_id, from_at",
		append(args, vms)...)
	if err != nil {
		return nil, err
	}
	return all, s.db.Select(ctx, &all, query, args...)
}

// CheckBilled fails with NotFound if the caller does not see a tenant, or if it never had anything.
// Empty: the VMs without a tenant.
func (s *Store) CheckBilled(ctx context.Context, tenant string) error {
	none := fault.New(fault.NotFound, "there is no such tenant")
	if !caller.From(ctx).Sees(tenant) {
		return none
	}
	if tenant == "" {
		return nil
	}
	var known bool
	err := s.db.Get(ctx, &known, `SELECT EXISTS (SELECT 1 FROM tenants WHERE name = ?)
		OR EXISTS (SELECT 1 FROM usage_segments WHERE tenant = ?) OR EXISTS (SELECT 1 FROM invoices WHERE tenant = ?)`,
		tenant, tenant, tenant)
	if err == nil && !known {
		err = none
	}
	return err
}

// NotCounted returns the name of a VM of a tenant whose usage is not known until a time: its host has
// not answered since. It is empty if there is none.
func (s *Store) NotCounted(ctx context.Context, tenant string, until time.Time) (name string, err error) {
	return name, s.db.Get(ctx, &name, `SELECT COALESCE(MIN(u.vm_name), '') FROM usage_tracks t JOIN usage_segments u
		ON u.vm_id = t.vm_id AND u.kind = t.kind AND u.started_at = t.started_at
		WHERE t.tenant = ? AND t.to_at < ? AND NOT t.final AND NOT EXISTS (SELECT 1 FROM usage_tracks n
		WHERE n.vm_id = t.vm_id AND n.kind = t.kind AND n.started_at > t.started_at)`, tenant, db.At(until))
}

// Line is a line of an invoice.
type Line struct {
	VM          string          `json:"vm"`
	Name        string          `json:"name"`
	Resource    string          `json:"resource"`
	Quantity    decimal.Decimal `json:"quantity"`
	Unit        string          `json:"unit"`
	Description string          `json:"description"`
	Amount      decimal.Decimal `json:"amount"`
}

// Invoice is what a tenant pays for a month. Number is 0 for a draft, which is not stored.
type Invoice struct {
	Number    int64           `db:"number"`
	Tenant    string          `db:"tenant"`
	From      db.Time         `db:"from_at"`
	To        db.Time         `db:"to_at"`
	Currency  string          `db:"currency"`
	Total     decimal.Decimal `db:"total"`
	Lines     db.JSON[[]Line] `db:"lines"`
	CreatedAt db.Time         `db:"created_at"`
}

var errNoInvoice = fault.New(fault.NotFound, "there is no such invoice")

// InvoiceOf returns the invoice of a tenant for the month that begins at a time. It fails with NotFound
// if there is none.
func (s *Store) InvoiceOf(ctx context.Context, tenant string, from time.Time) (Invoice, error) {
	return invoiceIn(ctx, s.db, "tenant = ? AND from_at = ?", tenant, db.At(from))
}

// Invoice returns an invoice in the caller's scope by its number.
func (s *Store) Invoice(ctx context.Context, number int64) (Invoice, error) {
	return invoiceIn(ctx, s.db, "number = ?", number)
}

func invoiceIn(ctx context.Context, q db.Querier, condition string, args ...any) (v Invoice, err error) {
	err = q.Get(ctx, &v, "SELECT * FROM invoices WHERE "+condition, args...)
	if errors.Is(err, db.ErrNoRows) || err == nil && !caller.From(ctx).Sees(v.Tenant) {
		return Invoice{}, errNoInvoice
	}
	return v, err
}

// Invoices lists the invoices in the caller's scope, newest first, starting below a number; 0: from the
// newest.
func (s *Store) Invoices(ctx context.Context, tenant *string, before int64, limit int) (all []Invoice, err error) {
	if before == 0 {
		before = 1 << 62
	}
	scope := caller.From(ctx).Scope().And("number < ?", before)
	if tenant != nil {
		scope = scope.And("tenant = ?", *tenant)
	}
	condition, args := scope.SQL()
	return all, s.db.Select(ctx, &all, "SELECT * FROM invoices WHERE "+condition+" ORDER BY number DESC LIMIT ?",
		append(args, limit)...)
}

// AddInvoice numbers and stores an invoice. If there is one of the month already, it returns that one.
func (s *Store) AddInvoice(ctx context.Context, v Invoice) (out Invoice, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		next, err := billingTurn(ctx, tx)
		if err != nil {
			return err
		}
		out, err = invoiceIn(ctx, tx, "tenant = ? AND from_at = ?", v.Tenant, v.From)
		if err == nil || !fault.Is(err, fault.NotFound) {
			return err
		}
		out = v
		out.Number, out.CreatedAt = next.Invoice, db.At(s.now())
		if err := tx.Insert(ctx, "invoices", out); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE billing_turns SET next_invoice = ? WHERE id = 1", next.Invoice+1)
		return err
	})
	return out, err
}

// NoteInvoice writes the audit entry of a request for an invoice.
func (s *Store) NoteInvoice(ctx context.Context, tenant, message string) error {
	return s.Note(ctx, audit.Entry{Action: "invoice.create", Target: tenant, Tenant: tenant, Message: message})
}

// ForgetUsage removes usage that ended before a time, what counted it, and prices that nothing refers to
// any more; and invoices of months that ended before another time.
func (s *Store) ForgetUsage(ctx context.Context, before, invoices time.Time) error {
	return s.count(ctx, func(tx *counting) error {
		for _, d := range []struct {
			statement string
			args      []any
		}{
			{"DELETE FROM usage_segments WHERE to_at < ?", []any{db.At(before)}},
			{"DELETE FROM usage_tracks WHERE to_at < ?", []any{db.At(before)}},
			{"DELETE FROM usage_cursors WHERE updated_at < ?", []any{db.At(before)}},
			{`DELETE FROM prices WHERE id < (SELECT COALESCE(MAX(id), 0) FROM prices WHERE from_at <= ?)
				AND NOT EXISTS (SELECT 1 FROM usage_segments u WHERE u.price_id = prices.id)`, []any{db.At(before)}},
			{"DELETE FROM invoices WHERE to_at < ?", []any{db.At(invoices)}},
		} {
			if _, err := tx.Exec(ctx, d.statement, d.args...); err != nil {
				return err
			}
		}
		return nil
	})
}
