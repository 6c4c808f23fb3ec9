package edge

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/tally"
)

// Heartbeat is a heartbeat of an agent. An empty version and nil labels leave the stored ones
// unchanged.
type Heartbeat struct {
	Version string
	Labels  map[string]string

	siteID string
	at     time.Time
}

// HeartbeatReply is the response to a heartbeat.
type HeartbeatReply struct {
	Site             Site
	RenewCertificate bool
	DesiredRevision  int64 // see desired.go
}

// Heartbeat records a heartbeat of the calling site. Concurrent heartbeats share transactions,
// since there may be thousands of sites.
func (s *Service) Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error) {
	if err := text.Check("version", h.Version); err != nil {
		return HeartbeatReply{}, err
	}
	if err := checkNamed("-", h.Labels); err != nil {
		return HeartbeatReply{}, err
	}
	h.siteID, h.at = callerFrom(ctx).SiteID, s.now()
	reply, err := s.heartbeats.Do(ctx, h)
	if err != nil {
		return HeartbeatReply{}, err
	}
	site := reply.Site
	if site.ID == "" || site.Status == siteRevoked { // deleted or revoked while this call waited
		return HeartbeatReply{}, errBadToken
	}
	reply.RenewCertificate = !site.CertNotAfter.IsZero() && s.now().After(site.CertNotAfter.Add(-certificateValidity/3))
	return reply, nil
}

// writeHeartbeats stores a batch of heartbeats. For each it returns the site and the site's desired
// revision.
func (s *Service) writeHeartbeats(ctx context.Context, tx *db.Tx, beats []Heartbeat) ([]HeartbeatReply, error) {
	ids := make([]string, len(beats))
	for i, h := range beats {
		ids[i] = h.siteID
	}
	slices.Sort(ids) // all replicas lock in the same order
	ids = slices.Compact(ids)
	query, args, err := db.In("SELECT * FROM sites WHERE id IN (?) ORDER BY id", ids)
	if err != nil {
		return nil, err
	}
	var rows []Site
	if err := tx.Select(ctx, &rows, query+tx.ForUpdate(), args...); err != nil {
		return nil, err
	}
	byID := make(map[string]*Site, len(rows))
	for i := range rows {
		byID[rows[i].ID] = &rows[i]
	}
	revisions, err := desiredRevisions(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	replies := make([]HeartbeatReply, len(beats))
	for i, h := range beats {
		site := byID[h.siteID]
		if site == nil || site.Status == siteRevoked {
			if site != nil {
				replies[i].Site = *site
			}
			continue
		}
		if err := s.writeHeartbeat(ctx, tx, site, h); err != nil {
			return nil, err
		}
		replies[i] = HeartbeatReply{Site: *site, DesiredRevision: revisions[site.ID]}
	}
	return replies, nil
}

func (s *Service) writeHeartbeat(ctx context.Context, tx *db.Tx, site *Site, h Heartbeat) error {
	if site.Status == siteOffline {
		tally.Move(tx, site.OrgID, tally.Site, siteOffline, siteOnline)
		if _, err := s.tell(
			ctx, tx, s.siteLine(*site, levelOK, "site.online", "site "+site.Name+" is back online"),
		); err != nil {
			return err
		}
		tx.OnCommit(s.nudgeAlerts)
	}
	site.Status, site.LastSeenAt = siteOnline, db.At(h.at)
	if (h.Version == "" || h.Version == site.Version) && (h.Labels == nil || maps.Equal(h.Labels, site.Labels.V)) {
		_, err := tx.Exec(
			ctx, "UPDATE sites SET status = ?, last_seen_at = ? WHERE id = ?", site.Status, site.LastSeenAt, site.ID,
		)
		return err
	}
	if h.Version != "" {
		site.Version = h.Version
	}
	if h.Labels != nil {
		site.Labels.V = h.Labels
	}
	_, err := tx.Exec(ctx, "UPDATE sites SET status = ?, last_seen_at = ?, version = ?, labels = ?, search = ? WHERE id = ?",
		site.Status, site.LastSeenAt, site.Version, site.Labels, site.searchText(), site.ID)
	return err
}

// errNoPKI is returned by operations that need the certificate authority while it is disabled.
var errNoPKI = fault.New(
	fault.Unavailable,
	"the certificate authority is switched off; start the service with --pki=true",
).WithCode("pki_disabled")
