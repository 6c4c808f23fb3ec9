package edge

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Org is a tenant. Its tokens see its own sites and what belongs to them.
type Org struct {
	ID        string  `db:"id"`
	Name      string  `db:"name"`
	CreatedAt db.Time `db:"created_at"`
}

// OrgTokens are an org's credentials, known in plain text only when it is made.
type OrgTokens struct{ Enrollment, Admin, Viewer string }

// CreateOrg makes an org and its three tokens.
func (s *Service) CreateOrg(ctx context.Context, name string) (Org, OrgTokens, error) {
	if err := text.Check("name", name); err != nil {
		return Org{}, OrgTokens{}, err
	}
	org := Org{ID: newID(), Name: name, CreatedAt: db.At(s.now())}
	var tokens OrgTokens
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		if err := tx.Insert(ctx, "orgs", org); err != nil {
			return err
		}
		for _, t := range []struct {
			token  *string
			prefix string
			row    tokenRow
		}{
			{&tokens.Enrollment, prefixEnrollment, tokenRow{Kind: KindEnrollment, Subject: name + " enrollment"}},
			{&tokens.Admin, prefixOrgAdmin, tokenRow{Kind: KindOrg, Role: RoleAdmin, Subject: name + " admin"}},
			{&tokens.Viewer, prefixOrgViewer, tokenRow{Kind: KindOrg, Role: RoleViewer, Subject: name + " viewer"}},
		} {
			t.row.OrgID = org.ID
			var err error
			if *t.token, err = s.issue(ctx, tx, t.prefix, t.row); err != nil {
				return err
			}
		}
		if err := tally.Add(ctx, tx, "", tally.Org, "active", 1); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{Action: "org.create", Target: org.ID, OrgID: org.ID, Message: "org " + name + " created"})
	})
	return org, tokens, err
}

// Orgs lists orgs after the given id.
func (s *Service) Orgs(ctx context.Context, after string, limit int) ([]Org, error) {
	orgs := []Org{}
	err := s.db.Select(ctx, &orgs, "SELECT * FROM orgs WHERE id > ? ORDER BY id LIMIT ?", after, limit)
	return orgs, err
}

// Org reads one org.
func (s *Service) Org(ctx context.Context, id string) (Org, error) {
	var org Org
	err := s.db.Get(ctx, &org, "SELECT * FROM orgs WHERE id = ?", id)
	return org, db.NotFound(err, "no org %s", id)
}

// DeleteOrg removes an org and its tokens, which stop working at once. Its sites
// keep running and are seen by global callers only.
func (s *Service) DeleteOrg(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, "DELETE FROM orgs WHERE id = ?", id)
		if err != nil {
			return err
		}
		if n == 0 {
			return fault.New(fault.NotFound, "no org %s", id)
		}
		if _, err := tx.Exec(ctx, "DELETE FROM tokens WHERE org_id = ? AND kind IN ('org', 'enrollment')", id); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM enrollment_tokens WHERE org_id = ?", id); err != nil {
			return err
		}
		s.tokensChanged(tx)
		if err := tally.Add(ctx, tx, "", tally.Org, "active", -1); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{Action: "org.delete", Target: id, OrgID: id, Message: "org deleted"})
	})
}
