package identity

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/db"
)

// AccountsAfter returns the accounts that an admin sees in the order of their names, beginning after
// a name.
func (s *Service) AccountsAfter(ctx context.Context, by Caller, after string, limit int) ([]Account, error) {
	where, args := scope(by).And("a.username > ?", after).SQL()
	var found []accountView
	err := s.db.Select(ctx, &found, "SELECT "+accountColumns+" WHERE "+where+" ORDER BY a.username LIMIT ?",
		append(args, limit)...)
	page := make([]Account, len(found))
	for i, v := range found {
		page[i] = v.public()
	}
	return page, err
}

// Own returns the account of the holder of a token.
func (s *Service) Own(ctx context.Context, by Caller) (Account, error) {
	return view(ctx, s.db, System, by.Username)
}

// CountByTenant returns how many accounts each tenant has.
func (s *Service) CountByTenant(ctx context.Context) (map[string]int, error) {
	var rows []struct {
		Tenant string `db:"tenant"`
		N      int    `db:"n"`
	}
	err := s.db.Select(ctx, &rows, "SELECT tenant, COUNT(*) AS n FROM accounts GROUP BY tenant")
	counts := make(map[string]int, len(rows))
	for _, r := range rows {
		counts[r.Tenant] = r.N
	}
	return counts, err
}

// CountInTenant returns how many accounts a tenant has.
func (s *Service) CountInTenant(ctx context.Context, q db.Querier, tenant string) (n int, err error) {
	return n, q.Get(ctx, &n, "SELECT COUNT(*) FROM accounts WHERE tenant = ?", tenant)
}
