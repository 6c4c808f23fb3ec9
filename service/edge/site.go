package edge

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/pki"
	"github.com/mainstay-infra/mainstay/kit/search"
	"github.com/mainstay-infra/mainstay/kit/shell"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Statuses of a site.
const (
	siteOnline  = "online"
	siteOffline = "offline"
	siteRevoked = "revoked"
)

// Labels are key-value pairs chosen by users.
type Labels = db.JSON[map[string]string]

// Site is a location at the edge that runs an agent.
type Site struct {
	ID           string  `db:"id"`
	OrgID        string  `db:"org_id"`
	Name         string  `db:"name"`
	Status       string  `db:"status"`
	Version      string  `db:"version"`
	Labels       Labels  `db:"labels"`
	LastSeenAt   db.Time `db:"last_seen_at"`
	EnrolledAt   db.Time `db:"enrolled_at"`
	CertSerial   string  `db:"cert_serial"`
	CertNotAfter db.Time `db:"cert_not_after"`
	Search       string  `db:"search"` // what a search looks at (package search)
}

func (s *Site) searchText() string { return search.Text(s.Labels.V, s.ID, s.Name) }

// described returns the ID, and the column search.
func (s *Site) described() (id, text string) { return s.ID, s.searchText() }

// Enrollment is the result of an enrollment.
type Enrollment struct {
	Site        Site
	AgentToken  string
	Certificate *pki.Certificate // nil without a CSR
}

// EnrollRequest is a request to enroll a site.
type EnrollRequest struct {
	Name, EnrollmentToken, CSR, Version string
	Labels                              map[string]string
}

// Enroll creates a site. It requires the global enrollment token, or one of an org's.
func (s *Service) Enroll(ctx context.Context, req EnrollRequest) (Enrollment, error) {
	// Many sites may enroll at once from one address. So only requests with a bad token are
	// throttled; one with a good token never is. Tokens have too many values to be guessed.
	orgID, counted, err := s.enrollmentOrg(ctx, req.EnrollmentToken)
	if fault.Is(err, fault.Unauthenticated) {
		guesses := "enroll " + shell.PeerOf(ctx).Network
		if throttled := s.throttle.Allowed(guesses); throttled != nil {
			return Enrollment{}, throttled
		}
		s.throttle.Failed(guesses)
	}
	if err != nil {
		return Enrollment{}, err
	}
	if err := checkNamed(req.Name, req.Labels); err != nil {
		return Enrollment{}, err
	}
	if err := text.Check("version", req.Version); err != nil {
		return Enrollment{}, err
	}
	var csr *x509.CertificateRequest
	if req.CSR != "" {
		if s.ca == nil {
			return Enrollment{}, errNoPKI
		}
		if csr, err = pki.ParseCSR(req.CSR); err != nil {
			return Enrollment{}, err
		}
	}
	now := db.At(s.now())
	e := Enrollment{Site: Site{ID: newID(), OrgID: orgID, Name: req.Name, Status: siteOnline, Version: req.Version,
		Labels: Labels{V: req.Labels}, LastSeenAt: now, EnrolledAt: now}}
	e.Site.Search = e.Site.searchText()
	err = s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if counted {
			if err := s.useEnrollmentToken(ctx, tx, auth.HashToken(req.EnrollmentToken)); err != nil {
				return err
			}
		}
		if csr != nil {
			if e.Certificate, err = s.issueCertificate(ctx, tx, &e.Site, csr); err != nil {
				return err
			}
		}
		if err := tx.Insert(ctx, "sites", e.Site); err != nil {
			return err
		}
		e.AgentToken, err = s.issue(
			ctx, tx, prefixAgent,
			tokenRow{Kind: KindAgent, Role: RoleAgent, Subject: e.Site.ID, OrgID: orgID, SiteID: e.Site.ID},
		)
		if err != nil {
			return err
		}
		tally.Add(tx, orgID, tally.Site, siteOnline, 1)
		if _, err := s.tell(
			ctx, tx, s.siteLine(e.Site, levelOK, "site.enroll", "site "+e.Site.Name+" enrolled"),
		); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{
			Action:  "site.enroll",
			Target:  e.Site.ID,
			SiteID:  e.Site.ID,
			OrgID:   orgID,
			Message: "site " + e.Site.Name + " enrolled",
		})
	})
	return e, err
}

// enrollmentOrg returns the org for which a token enrolls sites (empty: no org), and whether the
// token's uses are limited.
func (s *Service) enrollmentOrg(ctx context.Context, token string) (orgID string, counted bool, err error) {
	hash := auth.HashToken(token)
	if known := s.configured.Load(); known.enrollment != "" && auth.EqualHash(hash, known.enrollment) {
		return "", false, nil
	}
	err = s.db.Get(
		ctx, &orgID, "SELECT org_id FROM enrollment_tokens WHERE hash = ? AND expires_at > ? AND uses < max_uses",
		hash, db.At(s.now()),
	)
	if err == nil {
		return orgID, true, nil
	}
	if !errors.Is(err, db.ErrNoRows) {
		return "", false, err
	}
	row, err := findToken(ctx, s.db, hash)
	if err == nil && row.Kind != KindEnrollment || fault.Is(err, fault.Unauthenticated) {
		err = errEnrollmentToken
	}
	return row.OrgID, false, err
}

func (s *Service) siteLine(site Site, level, action, message string) Activity {
	return Activity{
		Level:   level,
		OrgID:   site.OrgID,
		SiteID:  site.ID,
		Site:    site.Name,
		Action:  action,
		Message: message,
		Chapter: "sites",
	}
}

// SiteFilter selects sites; zero fields select all.
type SiteFilter struct {
	Status string
	Text   string // must be contained in the id, the name or a label (key=value), ignoring case
	Sort   string // as the contract has it; empty: by id, which is the order of enrollment
	After  string // the key of the last site of the previous page
	Limit  int
}

var siteSorts = list.Sorts{List: "sites", Unique: "id", Usual: "id", By: map[string]list.Column{
	"id": {Name: "id"}, "name": {Name: "name"}, "status": {Name: "status"},
	"last_seen_at": {Name: "last_seen_at", Number: true},
}}

// siteKey returns the key of a site in a list.
func siteKey(order list.Order, site Site) string {
	value := ""
	switch order.Word() {
	case "name":
		value = site.Name
	case "status":
		value = site.Status
	case "last_seen_at":
		value = strconv.FormatInt(site.LastSeenAt.UnixMicro(), 10)
	}
	return order.Key(value, site.ID)
}

// Sites lists sites in scope.
func (s *Service) Sites(ctx context.Context, f SiteFilter) ([]Site, list.Order, error) {
	return s.sites(ctx, s.db, f)
}

func (s *Service) sites(ctx context.Context, q db.Querier, f SiteFilter) ([]Site, list.Order, error) {
	scope := callerFrom(ctx).scope()
	if f.Status != "" {
		scope = scope.And("status = ?", f.Status)
	}
	sites := []Site{}
	order, err := search.Page{
		Table: "sites", ID: "id", Sorts: siteSorts, Scope: scope, Text: f.Text, Sort: f.Sort, After: f.After, Limit: f.Limit,
	}.Read(ctx, q, &sites)
	return sites, order, err
}

// Site returns one site in scope.
func (s *Service) Site(ctx context.Context, id string) (Site, error) { return s.site(ctx, s.db, id) }

func (s *Service) site(ctx context.Context, q db.Querier, id string) (Site, error) {
	var site Site
	err := q.Get(ctx, &site, "SELECT * FROM sites WHERE id = ?", id)
	if err == nil && !callerFrom(ctx).sees(site.OrgID) {
		err = db.ErrNoRows
	}
	return site, db.NotFound(err, "no site %s", id)
}

// lockedSite returns one site in scope and locks it until the transaction ends.
func (s *Service) lockedSite(ctx context.Context, tx *db.Tx, id string) (Site, error) {
	var site Site
	err := tx.Get(ctx, &site, "SELECT * FROM sites WHERE id = ?"+tx.ForUpdate(), id)
	if err == nil && !callerFrom(ctx).sees(site.OrgID) {
		err = db.ErrNoRows
	}
	return site, db.NotFound(err, "no site %s", id)
}

// siteOrg returns the org of a site on whose behalf the caller may write. For agents that is only
// their own site (otherwise 403), for others the sites in scope (otherwise 404).
func (s *Service) siteOrg(ctx context.Context, siteID string) (string, error) {
	caller := callerFrom(ctx)
	if caller.Role == RoleAgent {
		if siteID != caller.SiteID {
			return "", fault.New(fault.Denied, "site_id: an agent may speak for its own site only")
		}
		return caller.OrgID, nil
	}
	site, err := s.Site(ctx, siteID)
	return site.OrgID, err
}

// ownSite checks the site_id in an agent's request, which is optional.
func ownSite(ctx context.Context, siteID string) error {
	if own := callerFrom(ctx).SiteID; siteID != "" && siteID != own {
		return fault.New(fault.Denied, "site_id: the token belongs to another site")
	}
	return nil
}

// PatchSite changes the name or labels of a site. Nil fields keep the present value.
func (s *Service) PatchSite(ctx context.Context, id string, name *string, labels map[string]string) (Site, error) {
	var site Site
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if site, err = s.lockedSite(ctx, tx, id); err != nil {
			return err
		}
		if name != nil {
			site.Name = *name
		}
		if labels != nil {
			site.Labels.V = labels
		}
		if err := checkNamed(site.Name, site.Labels.V); err != nil {
			return err
		}
		if _, err := tx.Exec(
			ctx, "UPDATE sites SET name = ?, labels = ?, search = ? WHERE id = ?", site.Name, site.Labels,
			site.searchText(), id,
		); err != nil {
			return err
		}
		return s.record(ctx, tx, entry{
			Action:  "site.update",
			Target:  id,
			SiteID:  id,
			OrgID:   site.OrgID,
			Message: "site " + site.Name + " changed",
			Detail:  map[string]any{"name": site.Name, "labels": site.Labels.V},
		})
	})
	return site, err
}

// RevokeSite revokes a site permanently: its tokens and certificates become invalid. Revoking it
// again changes nothing.
func (s *Service) RevokeSite(ctx context.Context, id string) (Site, error) {
	var site Site
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		if site, err = s.lockedSite(ctx, tx, id); err != nil {
			return err
		}
		if site.Status != siteRevoked {
			if err := s.revokeSite(ctx, tx, &site); err != nil {
				return err
			}
		}
		return s.record(ctx, tx, entry{
			Action:  "site.revoke",
			Target:  id,
			SiteID:  id,
			OrgID:   site.OrgID,
			Message: "site " + site.Name + " revoked",
		})
	})
	return site, err
}

// revokeSite revokes a site that is not revoked yet.
func (s *Service) revokeSite(ctx context.Context, tx *db.Tx, site *Site) error {
	tally.Move(tx, site.OrgID, tally.Site, site.Status, siteRevoked)
	site.Status = siteRevoked
	if _, err := tx.Exec(ctx, "UPDATE sites SET status = ? WHERE id = ?", siteRevoked, site.ID); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "UPDATE tokens SET revoked = TRUE WHERE site_id = ?", site.ID); err != nil {
		return err
	}
	s.tokensChanged(tx)
	if err := s.revokeCertificates(ctx, tx, site.ID); err != nil {
		return err
	}
	if err := removeFromCampaigns(ctx, tx, "site_id = ?", site.ID); err != nil {
		return err
	}
	tx.OnCommit(s.nudgeAlerts)
	_, err := s.tell(ctx, tx, s.siteLine(*site, levelWarn, "site.revoke", "site "+site.Name+" revoked"))
	return err
}

// DeleteSite deletes a site with its devices, deployments, policy packs and tokens. Its events and
// dead letters remain as history.
func (s *Service) DeleteSite(ctx context.Context, id string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		site, err := s.lockedSite(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := s.removeSite(ctx, tx, site); err != nil {
			return err
		}
		if _, err := s.tell(
			ctx, tx, s.siteLine(site, levelWarn, "site.delete", "site "+site.Name+" deleted"),
		); err != nil {
			return err
		}
		tx.OnCommit(s.nudgeAlerts)
		return s.record(ctx, tx, entry{
			Action:  "site.delete",
			Target:  id,
			SiteID:  id,
			OrgID:   site.OrgID,
			Message: "site " + site.Name + " deleted",
		})
	})
}

// removeSite deletes the rows of a site and of its objects.
func (s *Service) removeSite(ctx context.Context, tx *db.Tx, site Site) error {
	if err := s.revokeCertificates(ctx, tx, site.ID); err != nil {
		return err
	}
	if err := removeFromCampaigns(ctx, tx, "site_id = ?", site.ID); err != nil {
		return err
	}
	for _, c := range []counted{countedDevices, countedDeployments, countedPolicyPacks} {
		if err := deleteCounted(ctx, tx, c, "site_id = ?", site.ID); err != nil {
			return err
		}
	}
	for _, statement := range []string{
		"DELETE FROM tokens WHERE site_id = ?", "DELETE FROM desired_revisions WHERE site_id = ?",
		"DELETE FROM sites WHERE id = ?",
	} {
		if _, err := tx.Exec(ctx, statement, site.ID); err != nil {
			return err
		}
	}
	s.tokensChanged(tx)
	tally.Add(tx, site.OrgID, tally.Site, site.Status, -1)
	return nil
}

// counted is a table whose rows are counted in the tallies by state; devices by two states.
type counted struct{ table, kind, state, kind2, state2 string }

var (
	countedDevices     = counted{"devices", tally.Device, "'registered'", tally.OTA, "ota_state"}
	countedDeployments = counted{"deployments", tally.Deployment, "status", "", "''"}
	countedPolicyPacks = counted{
		"policy_packs",
		tally.PolicyPack,
		"CASE WHEN enabled THEN 'enabled' ELSE 'disabled' END",
		"",
		"''",
	}
)

// deleteCounted deletes rows and subtracts exactly those from the tallies, so that concurrent
// changes cannot make the tallies wrong.
func deleteCounted(ctx context.Context, tx *db.Tx, c counted, condition string, args ...any) error {
	var gone []struct {
		OrgID  string `db:"org_id"`
		State  string `db:"state"`
		State2 string `db:"state2"`
	}
	query := fmt.Sprintf(
		"DELETE FROM %s WHERE %s RETURNING org_id, %s AS state, %s AS state2", c.table, condition, c.state, c.state2,
	)
	if err := tx.Select(ctx, &gone, query, args...); err != nil {
		return err
	}
	for _, row := range gone {
		tally.Add(tx, row.OrgID, c.kind, row.State, -1)
		if row.State2 != "" {
			tally.Add(tx, row.OrgID, c.kind2, row.State2, -1)
		}
	}
	return nil
}

// keepSite fails with errBadToken if the site was deleted since its token was checked, and prevents
// its deletion until the transaction ends.
func keepSite(ctx context.Context, tx *db.Tx, id string) error {
	var found string
	err := tx.Get(ctx, &found, "SELECT id FROM sites WHERE id = ?"+tx.ForShare(), id)
	if errors.Is(err, db.ErrNoRows) {
		return errBadToken
	}
	return err
}

// checkNamed checks the name and labels of any object.
func checkNamed(name string, labels map[string]string) error {
	if err := text.Check("name", name); err != nil {
		return err
	}
	for k, v := range labels {
		if k == "" || len(k) > 128 {
			return fault.InvalidField("labels", "a key must have 1 to 128 bytes")
		}
		if err := text.Check("labels", k); err != nil {
			return err
		}
		if err := text.Check("labels."+k, v); err != nil {
			return err
		}
	}
	return nil
}

// markOffline marks sites as offline that have missed three heartbeats.
func (s *Service) markOffline(ctx context.Context) (err error) {
	// While the control plane or its database was down, no heartbeats could be received.
	defer func() {
		if err != nil {
			s.deafUntil = s.now()
		}
	}()
	if s.now().Before(s.deafUntil.Add(2 * s.cfg.HeartbeatInterval)) {
		return nil
	}
	deadline := db.At(s.now().Add(-3 * s.cfg.HeartbeatInterval))
	const page = 500
	for {
		var silent []Site
		err := s.db.Update(ctx, func(tx *db.Tx) error {
			silent = nil
			if err := tx.Select(
				ctx, &silent,
				"SELECT * FROM sites WHERE status = 'online' AND last_seen_at < ? ORDER BY last_seen_at LIMIT ?"+tx.ForUpdateSkipLocked(),
				deadline, page,
			); err != nil {
				return err
			}
			for _, site := range silent {
				if _, err := tx.Exec(ctx, "UPDATE sites SET status = 'offline' WHERE id = ?", site.ID); err != nil {
					return err
				}
				tally.Move(tx, site.OrgID, tally.Site, siteOnline, siteOffline)
				message := fmt.Sprintf(
					"site %s went offline, last seen %s", site.Name, site.LastSeenAt.Format(time.RFC3339),
				)
				if _, err := s.tell(ctx, tx, s.siteLine(site, levelWarn, "site.offline", message)); err != nil {
					return err
				}
			}
			if len(silent) > 0 {
				tx.OnCommit(s.nudgeAlerts)
			}
			return nil
		})
		if err != nil || len(silent) < page {
			return err
		}
	}
}
