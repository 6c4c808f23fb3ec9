package edge

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
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
		page, err := candidates(ctx, s.db, c, after, countPage)
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
