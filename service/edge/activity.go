package edge

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/text"
)

// Levels of activity lines.
const (
	levelInfo    = "info"
	levelWarn    = "warn"
	levelError   = "error"
	levelChapter = "chapter"
	levelOK      = "ok"
)

// Activity is a line of the fleet's activity log. It is meant for people and proves nothing (the
// audit log does). Its sequence number is both its ID and its position in the stream.
type Activity struct {
	Seq     int64   `db:"seq"`
	Time    db.Time `db:"time"`
	Level   string  `db:"level"`
	Source  string  `db:"source"`
	Chapter string  `db:"chapter"`
	OrgID   string  `db:"org_id"`
	SiteID  string  `db:"site_id"`
	Site    string  `db:"site"`
	Action  string  `db:"action"`
	Message string  `db:"message"`
	Detail  string  `db:"detail"`
}

// ID returns the line's ID as callers see it.
func (a Activity) ID() string { return strconv.FormatInt(a.Seq, 10) }

// tell adds lines to the activity log within a transaction and wakes the streams once it is
// committed. It assigns the sequence numbers and fills in defaults for empty fields.
func (s *Service) tell(ctx context.Context, tx *db.Tx, lines ...Activity) ([]Activity, error) {
	if len(lines) == 0 {
		return []Activity{}, nil
	}
	last, err := take(ctx, tx, "activity", len(lines))
	if err != nil {
		return nil, err
	}
	for i := range lines {
		l := &lines[i]
		l.Seq = last - int64(len(lines)-1-i)
		if l.Time.IsZero() {
			l.Time = db.At(s.now())
		}
		if l.Level == "" {
			l.Level = levelInfo
		}
		if l.Source == "" {
			l.Source = "control-plane"
		}
		if l.Detail == "" {
			l.Detail = "{}"
		}
		if err := tx.Insert(ctx, "activity", *l); err != nil {
			return nil, err
		}
	}
	tx.OnCommit(s.activityBell.Ring)
	return lines, nil
}

// AddActivity stores lines that a caller sent. Agents may write for their own site only; admins may
// name any site in their scope, or none.
func (s *Service) AddActivity(ctx context.Context, lines []Activity) ([]Activity, error) {
	caller := callerFrom(ctx)
	orgs := map[string]string{}
	for i := range lines {
		l := &lines[i]
		field := func(name string) string { return fmt.Sprintf("entries.%d.%s", i, name) }
		words := map[string]string{"source": l.Source, "chapter": l.Chapter, "site": l.Site, "action": l.Action}
		for name, given := range words {
			if err := text.Check(field(name), given); err != nil {
				return nil, err
			}
		}
		if err := checkLine(field("message"), l.Message); err != nil {
			return nil, err
		}
		if l.Detail != "" && !isJSONObject(l.Detail) {
			return nil, fault.InvalidField(field("detail"), "must be a JSON object")
		}
		if caller.Role == RoleAgent {
			if l.SiteID != "" && l.SiteID != caller.SiteID {
				return nil, fault.New(fault.Denied, "%s: an agent may speak for its own site only", field("site_id"))
			}
			l.SiteID = caller.SiteID
			if l.Source == "" {
				l.Source = "agent"
			}
		}
		l.OrgID = caller.OrgID
		if l.SiteID == "" {
			continue
		}
		org, known := orgs[l.SiteID]
		if !known {
			var err error
			if org, err = s.siteOrg(ctx, l.SiteID); err != nil {
				return nil, err
			}
			orgs[l.SiteID] = org
		}
		l.OrgID = org
	}
	err := s.db.Update(ctx, func(tx *db.Tx) (err error) {
		lines, err = s.tell(ctx, tx, lines...)
		return err
	})
	return lines, err
}

// checkLine is text.Check, but allows line breaks and tabs, which messages from programs contain.
func checkLine(field, given string) error {
	return text.Check(field, strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(given))
}

func isJSONObject(text string) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal([]byte(text), &object) == nil && object != nil
}

// ListActivity returns up to limit lines, newest first. If before is above zero, it returns only
// lines with a smaller sequence number.
func (s *Service) ListActivity(ctx context.Context, siteID string, before int64, limit int) ([]Activity, error) {
	where, args := callerFrom(ctx).scope().SQL()
	if siteID != "" {
		where, args = where+" AND site_id = ?", append(args, siteID)
	}
	if before > 0 {
		where, args = where+" AND seq < ?", append(args, before)
	}
	lines := []Activity{}
	err := s.db.Select(
		ctx, &lines, "SELECT * FROM activity WHERE "+where+" ORDER BY seq DESC LIMIT ?", append(args, limit)...)
	return lines, err
}

// newestActivity returns the sequence number of the newest line.
func (s *Service) newestActivity(ctx context.Context) (newest int64, err error) {
	return newest, s.db.Get(ctx, &newest, "SELECT value FROM counters WHERE name = 'activity'")
}

// activityAfter returns up to 500 lines with a sequence number above after, oldest first. It checks
// the stream's credentials again on each call: it fails if the token was revoked, has expired, or
// belongs to an org that was deleted.
func (s *Service) activityAfter(ctx context.Context, caller Caller, after int64) (lines []Activity, err error) {
	if now, err := s.callerByHash(ctx, caller.tokenHash); err != nil || now.Revoked || !access.Admits(accessAny, now) {
		return nil, cmp.Or(err, error(errBadToken))
	}
	where, args := caller.scope().SQL()
	err = s.db.Select(
		ctx, &lines, "SELECT * FROM activity WHERE "+where+" AND seq > ? ORDER BY seq LIMIT 500",
		append(args, after)...)
	return lines, err
}
