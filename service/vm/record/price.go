package record

import (
	"context"

	"github.com/shopspring/decimal"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/billing/tariff"
)

// priceRow is a row of the table prices.
type priceRow struct {
	ID              int64           `db:"id"`
	From            db.Time         `db:"from_at"`
	CPUPerHour      decimal.Decimal `db:"cpu_per_hour"`
	MemoryGBPerHour decimal.Decimal `db:"memory_gb_per_hour"`
	DiskGBPerHour   decimal.Decimal `db:"disk_gb_per_hour"`
	EgressPerGB     decimal.Decimal `db:"egress_per_gb"`
	Currency        string          `db:"currency"`
}

func (r *priceRow) price() tariff.Price {
	return tariff.Price{
		ID: r.ID, From: r.From.Time, CPUPerHour: r.CPUPerHour, MemoryGBPerHour: r.MemoryGBPerHour,
		DiskGBPerHour: r.DiskGBPerHour, EgressPerGB: r.EgressPerGB, Currency: r.Currency,
	}
}

// turns is the row that makes all that concerns billing take turns.
type turns struct {
	Price   int64 `db:"next_price"`
	Invoice int64 `db:"next_invoice"`
}

// billingTurn waits until no other transaction counts usage, sets a price or numbers an invoice.
func billingTurn(ctx context.Context, tx *db.Tx) (t turns, err error) {
	return t, tx.Get(ctx, &t, "SELECT next_price, next_invoice FROM billing_turns WHERE id = 1"+tx.ForUpdate())
}

// Prices lists all prices in order of time.
func (s *Store) Prices(ctx context.Context) ([]tariff.Price, error) { return pricesIn(ctx, s.db) }

func pricesIn(ctx context.Context, q db.Querier) (all []tariff.Price, err error) {
	var rows []priceRow
	err = q.Select(ctx, &rows, "SELECT * FROM prices ORDER BY from_at")
	for i := range rows {
		all = append(all, rows[i].price())
	}
	return all, err
}

// SetPrice stores a price, which holds from now on. What was used before keeps its price.
func (s *Store) SetPrice(ctx context.Context, p tariff.Price) (tariff.Price, error) {
	if err := p.Check(); err != nil {
		return p, err
	}
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		next, err := billingTurn(ctx, tx)
		if err != nil {
			return err
		}
		// Usage and money of one tenant are in one currency, so that they can be added up.
		var other string
		err = tx.Get(ctx, &other, `SELECT COALESCE(MIN(p.currency), '') FROM prices p WHERE p.currency <> ?
			AND NOT (p.cpu_per_hour = '0' AND p.memory_gb_per_hour = '0' AND p.disk_gb_per_hour = '0' AND p.egress_per_gb = '0')
			AND EXISTS (SELECT 1 FROM usage_segments u WHERE u.price_id = p.id)`, p.Currency)
		switch {
		case err != nil:
			return err
		case other != "":
			return fault.InvalidField("currency", "must be %s: there is usage that was priced in it", other)
		}
		// After all that was counted already, also if a host's clock is ahead.
		var latest db.Time
		if err := tx.Get(ctx, &latest, `SELECT MAX(t) FROM (SELECT MAX(to_at) + 1 AS t FROM usage_tracks
			UNION ALL SELECT MAX(from_at) + 1 AS t FROM prices) x`); err != nil {
			return err
		}
		p.ID, p.From = next.Price, db.At(s.now()).UTC()
		if latest.After(p.From) {
			p.From = latest.UTC()
		}
		if err := tx.Insert(ctx, "prices", priceRow{
			p.ID, db.At(p.From), p.CPUPerHour, p.MemoryGBPerHour, p.DiskGBPerHour, p.EgressPerGB, p.Currency,
		}); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "UPDATE billing_turns SET next_price = ? WHERE id = 1", p.ID+1); err != nil {
			return err
		}
		return s.note(ctx, tx, audit.Entry{Action: "pricing.set", Target: "pricing", Message: p.Currency})
	})
	return p, err
}
