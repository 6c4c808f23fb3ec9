package edge

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// countPage is how many devices CountTargets reads at once.
const countPage = 5000

// CountTargets returns how many devices a campaign of the caller with these targets would have if it
// started now. IDs that do not exist, or belong to another org, count nothing.
func (s *Service) CountTargets(ctx context.Context, t Targets) (n int64, err error) {
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
