package edge

import (
	"context"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/search"
)

// countPage is how many devices CountTargets reads at once.
const countPage = 5000

// CountTargets returns how many devices a campaign of the caller with these targets would have if it
// started now. IDs that do not exist, or belong to another org, count nothing. Targets that name
// nothing are a fault of kind Invalid.
func (s *Service) CountTargets(ctx context.Context, t Targets) (n int64, err error) {
	if t.empty() {
		return 0, fault.New(fault.Invalid, "the request must name targets: site_ids, labels or device_ids")
	}
	c := Campaign{OrgID: callerFrom(ctx).OrgID, Targets: db.JSON[Targets]{V: t}}
	isTarget := t.matcher()
	for after := ""; ; {
		page, err := candidates(ctx, s.db, c, t.likely(), after, countPage)
		if err != nil || len(page) == 0 {
			return n, err
		}
		for i := range page {
			if isTarget(&page[i]) {
				n++
			}
		}
		after = page[len(page)-1].DeviceID
	}
}

// likely returns a scope of devices (d) that has all targets and few others, so that counting a few
// devices does not read the whole fleet. A rollout does not use it: its transactions read a bounded
// number of devices each, and ingest waits for them.
func (t Targets) likely() db.Scope {
	all := db.All()
	if len(t.SiteIDs)+len(t.DeviceIDs) > 0 {
		return all
	}
	for k, v := range t.Labels {
		found, arg := search.Contains("\n" + k + "=" + v)
		// The column is empty until it is written after an upgrade, and leaves out what is after so many
		// bytes, of which a character takes up to four.
		all = all.And(
			"d."+found+" OR d.search = '' OR LENGTH(d.search) > ?", arg, search.MaxText/utf8.UTFMax-utf8.UTFMax,
		)
	}
	return all
}
