package edge

import (
	"context"
	"fmt"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/image"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// PolicyPack is an allowlist of images, for one site or for the whole fleet. Once
// an enabled pack applies to a site, the site runs only images that one of the
// packs applying to it allows.
type PolicyPack struct {
	ID            string            `db:"id"`
	OrgID         string            `db:"org_id"`
	Name          string            `db:"name"`
	Version       int64             `db:"version"`
	SiteID        string            `db:"site_id"` // empty: the whole fleet
	Enabled       bool              `db:"enabled"`
	AllowedImages db.JSON[[]string] `db:"allowed_images"`
	CreatedAt     db.Time           `db:"created_at"`
	UpdatedAt     db.Time           `db:"updated_at"`
}

func (p *PolicyPack) state() string {
	if p.Enabled {
		return "enabled"
	}
	return "disabled"
}

func checkPolicyPack(p *PolicyPack) error {
	if err := text.Check("name", p.Name); err != nil {
		return err
	}
	for i, pattern := range p.AllowedImages.V {
		field := fmt.Sprintf("allowed_images.%d", i)
		if pattern == "" || len(pattern) > image.MaxLength {
			return fault.InvalidField(field, "must have 1 to %d bytes", image.MaxLength)
		}
		if err := text.Check(field, pattern); err != nil {
			return err
		}
	}
	return nil
}

// policiesOf reads the enabled packs that apply to a site.
func policiesOf(ctx context.Context, q db.Querier, siteID string) ([]PolicyPack, error) {
	var packs []PolicyPack
	err := q.Select(ctx, &packs, "SELECT * FROM policy_packs WHERE site_id IN ('', ?) AND enabled ORDER BY id", siteID)
	return packs, err
}

// allowed reports whether an image may run. packs must be all packs that apply; if there are none,
// every image may run.
func allowed(packs []PolicyPack, ref image.Reference) bool {
	for _, p := range packs {
		if ref.Allowed(p.AllowedImages.V) {
			return true
		}
	}
	return len(packs) == 0
}

// mayRun returns an error if no pack that applies to the site allows the image.
func (s *Service) mayRun(ctx context.Context, q db.Querier, siteID string, ref image.Reference) error {
	packs, err := policiesOf(ctx, q, siteID)
	if err != nil || allowed(packs, ref) {
		return err
	}
	return fault.New(
		fault.Denied, "image: %s is not on the allowlist of any policy pack that applies to site %s", ref, siteID,
	).WithCode("image_not_allowed")
}

// ImageVerdict tells whether an image may run, and which patterns match it.
type ImageVerdict struct {
	Image   string // canonical
	Allowed bool
	Packs   int // number of packs that apply
	Matches []ImageMatch
}

// ImageMatch is a pattern of a pack that matches an image.
type ImageMatch struct{ PackID, PackName, Pattern string }

// CheckImage reports whether a site may run an image. If siteID is empty, only packs for the whole
// fleet apply.
func (s *Service) CheckImage(ctx context.Context, name, siteID string) (ImageVerdict, error) {
	ref, err := image.Parse("image", name)
	if err != nil {
		return ImageVerdict{}, err
	}
	if siteID != "" {
		if _, err := s.Site(ctx, siteID); err != nil {
			return ImageVerdict{}, err
		}
	}
	packs, err := policiesOf(ctx, s.db, siteID)
	if err != nil {
		return ImageVerdict{}, err
	}
	v := ImageVerdict{Image: ref.Canonical(), Allowed: allowed(packs, ref), Packs: len(packs), Matches: []ImageMatch{}}
	for _, p := range packs {
		for _, pattern := range p.AllowedImages.V {
			if ref.Allowed([]string{pattern}) {
				v.Matches = append(v.Matches, ImageMatch{p.ID, p.Name, pattern})
			}
		}
	}
	return v, nil
}

// AgentPolicyPacks lists the enabled packs that apply to the calling site, after the given ID.
func (s *Service) AgentPolicyPacks(ctx context.Context, siteID, after string, limit int) ([]PolicyPack, error) {
	if err := ownSite(ctx, siteID); err != nil {
		return nil, err
	}
	packs := []PolicyPack{}
	err := s.db.Select(
		ctx, &packs,
		"SELECT * FROM policy_packs WHERE site_id IN ('', ?) AND enabled AND id > ? ORDER BY id LIMIT ?",
		callerFrom(ctx).SiteID, after, limit,
	)
	return packs, err
}

// CreatePolicyPack creates a pack. Only global admins may create one for the whole fleet, since it
// applies to every org.
func (s *Service) CreatePolicyPack(ctx context.Context, p PolicyPack) (PolicyPack, error) {
	if err := checkPolicyPack(&p); err != nil {
		return p, err
	}
	if p.SiteID == "" && !callerFrom(ctx).Global() {
		return p, fault.New(fault.Denied, "site_id: only a global admin may make a pack for the whole fleet")
	}
	p.ID, p.Version, p.CreatedAt = newID(), 1, db.At(s.now())
	p.UpdatedAt = p.CreatedAt
	err := s.db.Update(ctx, func(tx *db.Tx) error {
		if p.SiteID != "" {
			site, err := s.lockedSite(ctx, tx, p.SiteID)
			if err != nil {
				return err
			}
			p.OrgID = site.OrgID
		}
		if err := tx.Insert(ctx, "policy_packs", p); err != nil {
			return err
		}
		tally.Add(tx, p.OrgID, tally.PolicyPack, p.state(), 1)
		if err := policyChanged(ctx, tx, p); err != nil {
			return err
		}
		tx.OnCommit(s.nudgeAlerts)
		return s.record(ctx, tx, entry{
			Action:  "policy.create",
			Target:  p.ID,
			SiteID:  p.SiteID,
			OrgID:   p.OrgID,
			Message: "policy pack " + p.Name + " created",
			Detail:  map[string]any{"allowed_images": p.AllowedImages.V},
		})
	})
	return p, err
}

// PolicyPacks lists the packs that the caller may see, after the given ID: those in scope and those
// for the whole fleet.
func (s *Service) PolicyPacks(ctx context.Context, after string, limit int) ([]PolicyPack, error) {
	where, args := callerFrom(ctx).scope().SQL()
	packs := []PolicyPack{}
	err := s.db.Select(
		ctx, &packs, "SELECT * FROM policy_packs WHERE ("+where+" OR site_id = '') AND id > ? ORDER BY id LIMIT ?",
		append(args, after, limit)...)
	return packs, err
}

// PolicyPack returns one pack that the caller may see.
func (s *Service) PolicyPack(ctx context.Context, id string) (PolicyPack, error) {
	return s.policyPack(ctx, s.db, id, "")
}

func (s *Service) policyPack(ctx context.Context, q db.Querier, id, lock string) (PolicyPack, error) {
	var p PolicyPack
	err := q.Get(ctx, &p, "SELECT * FROM policy_packs WHERE id = ?"+lock, id)
	if err == nil && p.SiteID != "" && !callerFrom(ctx).sees(p.OrgID) {
		err = db.ErrNoRows
	}
	return p, db.NotFound(err, "no policy pack %s", id)
}

// ownPolicyPack returns a pack and locks it. It fails with Denied if the caller may see the pack
// but not change it.
func (s *Service) ownPolicyPack(ctx context.Context, tx *db.Tx, id string) (PolicyPack, error) {
	p, err := s.policyPack(ctx, tx, id, tx.ForUpdate())
	if err == nil && p.SiteID == "" && !callerFrom(ctx).Global() {
		err = fault.New(fault.Denied, "policy pack %s is for the whole fleet; only a global admin may change it", id)
	}
	return p, err
}

// PolicyPackInput holds the changes to a pack. Nil fields keep the present value.
type PolicyPackInput struct {
	Name          *string
	Enabled       *bool
	AllowedImages []string
}

// PatchPolicyPack changes a pack and increases its version. Running deployments are checked again:
// agents learn of it through AgentDeployments, operators through an alert.
func (s *Service) PatchPolicyPack(ctx context.Context, id string, in PolicyPackInput) (PolicyPack, error) {
	var p PolicyPack
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if p, err = s.ownPolicyPack(ctx, tx, id); err != nil {
			return err
		}
		was := p.state()
		set(&p.Name, in.Name)
		set(&p.Enabled, in.Enabled)
		if in.AllowedImages != nil {
			p.AllowedImages.V = in.AllowedImages
		}
		if err := checkPolicyPack(&p); err != nil {
			return err
		}
		p.Version++
		p.UpdatedAt = db.At(s.now())
		if _, err := tx.Exec(
			ctx,
			"UPDATE policy_packs SET name = ?, enabled = ?, allowed_images = ?, version = ?, updated_at = ? WHERE id = ?",
			p.Name, p.Enabled, p.AllowedImages, p.Version, p.UpdatedAt, id,
		); err != nil {
			return err
		}
		tally.Move(tx, p.OrgID, tally.PolicyPack, was, p.state())
		if err := policyChanged(ctx, tx, p); err != nil {
			return err
		}
		tx.OnCommit(s.nudgeAlerts)
		return s.record(ctx, tx, entry{
			Action:  "policy.update",
			Target:  id,
			SiteID:  p.SiteID,
			OrgID:   p.OrgID,
			Message: "policy pack " + p.Name + " changed",
			Detail: map[string]any{
				"enabled":        p.Enabled,
				"allowed_images": p.AllowedImages.V,
				"version":        p.Version,
			},
		})
	})
	return p, err
}

// DeletePolicyPack deletes a pack.
func (s *Service) DeletePolicyPack(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		p, err := s.ownPolicyPack(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM policy_packs WHERE id = ?", id); err != nil {
			return err
		}
		tally.Add(tx, p.OrgID, tally.PolicyPack, p.state(), -1)
		if err := policyChanged(ctx, tx, p); err != nil {
			return err
		}
		tx.OnCommit(s.nudgeAlerts)
		return s.record(ctx, tx, entry{
			Action:  "policy.delete",
			Target:  id,
			SiteID:  p.SiteID,
			OrgID:   p.OrgID,
			Message: "policy pack " + p.Name + " deleted",
		})
	})
}
