package edge

import (
	"context"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

var (
	errBadToken    = fault.New(fault.Unauthenticated, "the token is unknown, expired or revoked")
	errSiteRevoked = fault.New(fault.Denied, "this site was revoked; enroll it anew if it is to come back").WithCode(
		"site_revoked",
	)
)

// Prefixes make leaked tokens recognizable for people and secret scanners.
const (
	prefixSession    = "mse_"
	prefixAgent      = "mag_"
	prefixOrgAdmin   = "moa_"
	prefixOrgViewer  = "mov_"
	prefixEnrollment = "men_"
)

type tokenRow struct {
	Hash      string  `db:"hash"`
	Kind      Kind    `db:"kind"`
	Role      Role    `db:"role"`
	Subject   string  `db:"subject"`
	OrgID     string  `db:"org_id"`
	SiteID    string  `db:"site_id"`
	Revoked   bool    `db:"revoked"`
	CreatedAt db.Time `db:"created_at"`
	ExpiresAt db.Time `db:"expires_at"`
}

// issue stores a new token and returns it. Only its hash is stored.
func (s *Service) issue(ctx context.Context, tx *db.Tx, prefix string, row tokenRow) (string, error) {
	token := auth.NewToken(prefix)
	row.Hash, row.CreatedAt = auth.HashToken(token), db.At(s.now())
	return token, tx.Insert(ctx, "tokens", row)
}

// callerByToken returns the caller to whom a token belongs, or errBadToken.
func (s *Service) callerByToken(ctx context.Context, token string) (Caller, error) {
	return s.callerByHash(ctx, auth.HashToken(token))
}

func (s *Service) callerByHash(ctx context.Context, hash string) (Caller, error) {
	if c, ok := s.globalCaller(hash); ok {
		return c, nil
	}
	c, generation, ok := s.tokens.get(hash)
	if !ok {
		row, err := findToken(ctx, s.db, hash)
		if err != nil {
			return Caller{}, err
		}
		if row.Kind == KindEnrollment { // valid for enrollment only
			return Caller{}, errBadToken
		}
		c = Caller{Subject: row.Subject, Kind: row.Kind, Role: row.Role, OrgID: row.OrgID, SiteID: row.SiteID,
			ExpiresAt: row.ExpiresAt.Time, Revoked: row.Revoked, tokenHash: hash}
		s.tokens.put(hash, c, generation)
	}
	if !c.ExpiresAt.IsZero() && !s.now().Before(c.ExpiresAt) {
		return Caller{}, errBadToken
	}
	return c, nil
}

// findToken returns the row of a token, or errBadToken. The lookup uses the hash of 256 random
// bits, so its timing reveals nothing useful; the comparison takes constant time anyway.
func findToken(ctx context.Context, q db.Querier, hash string) (tokenRow, error) {
	var row tokenRow
	err := q.Get(ctx, &row, "SELECT * FROM tokens WHERE hash = ?", hash)
	if err != nil {
		if fault.Is(db.NotFound(err, ""), fault.NotFound) {
			return row, errBadToken
		}
		return row, err
	}
	if !auth.EqualHash(row.Hash, hash) {
		return row, errBadToken
	}
	return row, nil
}

// globalCaller returns the caller for a global token of the configuration.
func (s *Service) globalCaller(hash string) (Caller, bool) {
	known := s.configured.Load()
	if known.adminToken != "" && auth.EqualHash(hash, known.adminToken) {
		return Caller{Subject: "admin-token", Kind: KindToken, Role: RoleAdmin, tokenHash: hash}, true
	}
	if known.viewerToken != "" && auth.EqualHash(hash, known.viewerToken) {
		return Caller{Subject: "viewer-token", Kind: KindToken, Role: RoleViewer, tokenHash: hash}, true
	}
	return Caller{}, false
}

// tokensChanged must be called in every transaction that deletes or revokes tokens.
func (s *Service) tokensChanged(tx *db.Tx) {
	tx.OnCommit(func() {
		s.tokens.clear()
		s.activityBell.Ring() // streams check again whether their tokens are still valid
	})
}

// deleteExpiredTokens deletes expired tokens, so that the tables do not grow with every login.
func (s *Service) deleteExpiredTokens(ctx context.Context) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		now := db.At(s.now())
		if _, err := tx.Exec(
			ctx, "DELETE FROM tokens WHERE expires_at IS NOT NULL AND expires_at < ?", now,
		); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM enrollment_tokens WHERE expires_at < ?", now)
		return err
	})
}

// tokenCache caches callers by token hash. It is enabled only if this process is the only writer of
// the database, so that revocation takes effect at once.
type tokenCache struct {
	enabled bool

	mu         sync.RWMutex
	callers    map[string]Caller
	generation uint64
}

// maxCachedTokens limits the size of the cache (about 300 bytes per caller).
const maxCachedTokens = 50_000

func (t *tokenCache) get(hash string) (Caller, uint64, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c, ok := t.callers[hash]
	return c, t.generation, ok
}

// put caches a caller, unless tokens were deleted or revoked since generation was read.
func (t *tokenCache) put(hash string, c Caller, generation uint64) {
	if !t.enabled {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation != generation {
		return
	}
	if t.callers == nil || len(t.callers) >= maxCachedTokens {
		t.callers = make(map[string]Caller)
	}
	t.callers[hash] = c
}

func (t *tokenCache) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.callers, t.generation = nil, t.generation+1
}

const sessionLifetime = 12 * time.Hour
