package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/service/edge"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// openStopped opens the database of a stopped server. A hundred thousand registrations are as many
// transactions. Writing their rows at once results in the same state, except for the audit log, in
// a fraction of the time.
func openStopped(ctx context.Context, dir string) (*db.DB, error) { return openMigrated(ctx, dir, "") }

// openMigrated opens the database at a PostgreSQL URL, or in a folder if there is none.
func openMigrated(ctx context.Context, dir, url string) (*db.DB, error) {
	d, err := db.Open(ctx, db.Config{URL: url, Path: edge.DatabaseFile(dir), Schema: "edge"})
	if err != nil {
		return nil, err
	}
	for _, m := range edge.Migrations() {
		if err := d.Migrate(ctx, m.Owner, m.Files); err != nil {
			return nil, errors.Join(err, d.Close())
		}
	}
	return d, nil
}

// tokenRow is a row of the table tokens.
type tokenRow struct {
	Hash      string  `db:"hash"`
	Kind      string  `db:"kind"`
	Role      string  `db:"role"`
	Subject   string  `db:"subject"`
	OrgID     string  `db:"org_id"`
	SiteID    string  `db:"site_id"`
	Revoked   bool    `db:"revoked"`
	CreatedAt db.Time `db:"created_at"`
	ExpiresAt db.Time `db:"expires_at"`
}

// seedSites enrolls sites while the server is stopped.
func seedSites(ctx context.Context, dir string, n int) (_ []site, err error) {
	d, err := openStopped(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	sites := make([]site, 0, n)
	err = d.Update(ctx, func(tx *db.Tx) error {
		now := db.At(time.Now())
		for i := range n {
			s := site{uuid.Must(uuid.NewV7()).String(), auth.NewToken("mag_")}
			row := edge.Site{
				ID:         s.id,
				Name:       fmt.Sprintf("site-%d", i),
				Status:     "online",
				Version:    "1.0.0",
				LastSeenAt: now,
				EnrolledAt: now,
			}
			if err := tx.Insert(ctx, "sites", row); err != nil {
				return err
			}
			if err := tx.Insert(ctx, "tokens", tokenRow{
				Hash:      auth.HashToken(s.token),
				Kind:      "agent",
				Role:      "agent",
				Subject:   s.id,
				SiteID:    s.id,
				CreatedAt: now,
			}); err != nil {
				return err
			}
			sites = append(sites, s)
		}
		tally.Add(tx, "", tally.Site, "online", int64(n))
		return nil
	})
	return sites, err
}

// seedDevices registers the devices with numbers from from to to-1, distributed over the sites.
func seedDevices(ctx context.Context, dir string, sites []site, from, to int) (err error) {
	d, err := openStopped(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	for ; from < to; from += 10_000 {
		err := d.Update(ctx, func(tx *db.Tx) error {
			now := db.At(time.Now())
			end := min(from+10_000, to)
			for i := from; i < end; i++ {
				row := edge.Device{
					DeviceID:        fmt.Sprintf("device-%06d", i),
					SiteID:          sites[i%len(sites)].id,
					Name:            fmt.Sprintf("device %d", i),
					Model:           "m1",
					FirmwareVersion: "1.0.0",
					RegisteredAt:    now,
					LastSeenAt:      now,
					Desired:         "{}",
					Reported:        "{}",
					TwinUpdatedAt:   now,
				}
				row.Labels.V = map[string]string{"line": "a"}
				if err := tx.Insert(ctx, "devices", row); err != nil {
					return err
				}
			}
			tally.Add(tx, "", tally.Device, "registered", int64(end-from))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
