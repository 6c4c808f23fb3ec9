package edge

import (
	"context"
	"errors"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/delivery"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Org is a tenant. Its tokens see only its own sites and their objects.
type Org struct {
	ID        string  `db:"id"`
	Name      string  `db:"name"`
	CreatedAt db.Time `db:"created_at"`
}

// OrgTokens are an org's credentials. They exist in plain text only when the org is created.
type OrgTokens struct{ Enrollment, Admin, Viewer string }

// CreateOrg creates an org and its three tokens.
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
		tally.Add(tx, "", tally.Org, "active", 1)
		return s.record(
			ctx, tx, entry{Action: "org.create", Target: org.ID, OrgID: org.ID, Message: "org " + name + " created"},
		)
	})
	return org, tokens, err
}

// Orgs lists orgs after the given id.
func (s *Service) Orgs(ctx context.Context, after string, limit int) ([]Org, error) {
	orgs := []Org{}
	err := s.db.Select(ctx, &orgs, "SELECT * FROM orgs WHERE id > ? ORDER BY id LIMIT ?", after, limit)
	return orgs, err
}

// Org returns one org.
func (s *Service) Org(ctx context.Context, id string) (Org, error) {
	var org Org
	err := s.db.Get(ctx, &org, "SELECT * FROM orgs WHERE id = ?", id)
	return org, db.NotFound(err, "no org %s", id)
}

// reasonOrgDeleted is the reason for disabling the routes of a deleted org. It raises no alert.
const reasonOrgDeleted = "its org was deleted"

// DeleteOrg deletes an org and its tokens, which become invalid at once. Its routes are disabled,
// their pending deliveries become dead letters, and its campaigns are aborted. Its sites keep
// running, but only global callers see them.
func (s *Service) DeleteOrg(ctx context.Context, id string) error {
	if _, err := s.Org(ctx, id); err != nil {
		return err // fail before taking any locks
	}
	var routes []Route
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if routes, err = s.holdRoutesOf(ctx, tx, id); err != nil {
			return err
		}
		if err := s.removeOrg(ctx, tx, id); err != nil {
			return err
		}
		for _, r := range routes {
			was := r
			r.Enabled, r.DisabledReason, r.UpdatedAt = false, reasonOrgDeleted, db.At(s.now())
			if _, err := s.changeRoute(ctx, tx, was, r, "route "+r.Name+" disabled: "+r.DisabledReason); err != nil {
				return err
			}
		}
		if err := s.abortCampaignsOf(ctx, tx, id); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{Action: "org.delete", Target: id, OrgID: id, Message: "org deleted"})
	})
	if err != nil {
		return err
	}
	for _, r := range routes {
		s.buryRest(ctx, r.ID, id)
	}
	return nil
}

// holdRoutesOf calls holdRoutes for the enabled routes of an org and returns them.
func (s *Service) holdRoutesOf(ctx context.Context, tx *db.Tx, orgID string) (routes []Route, err error) {
	if err := s.holdRoutes(ctx, tx); err != nil {
		return nil, err
	}
	if err := tx.Select(
		ctx, &routes, "SELECT * FROM routes WHERE org_id = ? AND enabled ORDER BY id", orgID,
	); err != nil {
		return nil, err
	}
	ids := make([]string, len(routes))
	for i, r := range routes {
		ids[i] = r.ID
	}
	tx.OnCommit(func() { s.delivery.Changed(ids...) })
	return routes, delivery.LockRoute(ctx, tx, ids...)
}

// removeOrg deletes the rows of an org and of its tokens.
func (s *Service) removeOrg(ctx context.Context, tx *db.Tx, id string) error {
	n, err := tx.Exec(ctx, "DELETE FROM orgs WHERE id = ?", id)
	if err != nil {
		return err
	}
	if n == 0 {
		return fault.New(fault.NotFound, "no org %s", id)
	}
	for _, statement := range []string{
		"DELETE FROM tokens WHERE org_id = ? AND kind IN ('org', 'enrollment')",
		"DELETE FROM enrollment_tokens WHERE org_id = ?",
	} {
		if _, err := tx.Exec(ctx, statement, id); err != nil {
			return err
		}
	}
	s.tokensChanged(tx)
	tally.Add(tx, "", tally.Org, "active", -1)
	return nil
}

// keepOrg fails with errBadToken if the org was deleted since its token was checked, and prevents
// its deletion until the transaction ends. Objects of the operator have no org (an empty ID).
func keepOrg(ctx context.Context, tx *db.Tx, id string) error {
	if id == "" {
		return nil
	}
	var found string
	err := tx.Get(ctx, &found, "SELECT id FROM orgs WHERE id = ?"+tx.ForShare(), id)
	if errors.Is(err, db.ErrNoRows) {
		return errBadToken
	}
	return err
}

// abortCampaignsOf aborts the campaigns of an org that is being deleted.
func (s *Service) abortCampaignsOf(ctx context.Context, tx *db.Tx, orgID string) error {
	var campaigns []Campaign
	if err := tx.Select(
		ctx, &campaigns,
		"SELECT * FROM campaigns WHERE org_id = ? AND status IN ('draft', 'running') ORDER BY id"+tx.ForUpdate(),
		orgID,
	); err != nil {
		return err
	}
	for _, c := range campaigns {
		was := c.Status
		c.abort(s.now())
		if _, err := s.writeCampaign(
			ctx, tx, was, c, "campaign.abort", "campaign "+c.Name+" aborted: its org was deleted",
		); err != nil {
			return err
		}
	}
	return nil
}
