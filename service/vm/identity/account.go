package identity

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/pam"
)

// Source is where the password of an account is checked.
type Source string

// The sources.
const (
	Local Source = "local"
	Host  Source = "pam"
)

// account is a row.
type account struct {
	ID           string  `db:"id"`
	Username     string  `db:"username"`
	Source       Source  `db:"source"`
	Role         Role    `db:"role"` // of the host's: assigned, or empty
	HostRole     Role    `db:"host_role"`
	HostSeen     db.Time `db:"host_seen_at"`
	Tenant       string  `db:"tenant"`
	PasswordHash string  `db:"password_hash"`
	Epoch        string  `db:"epoch"`
	CreatedAt    db.Time `db:"created_at"`
	UpdatedAt    db.Time `db:"updated_at"`
}

// effective returns the role that counts.
func (a account) effective() Role {
	if a.Role == "" && a.Source == Host {
		return a.HostRole
	}
	return a.Role
}

var usernamePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func checkUsername(username string) error {
	if !usernamePattern.MatchString(username) {
		return fault.InvalidField("username", "must have 1 to 64 letters, digits, dots, dashes and underscores")
	}
	return nil
}

// counted returns the spelling of a username under which its failures count. Directories may ignore
// case, so a user has one counter whatever the case.
func counted(username string) string { return strings.ToLower(username) }

// newEpoch returns a mark that no token carries.
func newEpoch() string { return auth.HashToken(auth.NewToken(""))[:16] }

func newAccount(username string, source Source, now time.Time) account {
	return account{
		ID: uuid.NewString(), Username: username, Source: source, Epoch: newEpoch(),
		CreatedAt: db.At(now), UpdatedAt: db.At(now),
	}
}

// find returns the account with a name.
func find(ctx context.Context, q db.Querier, username, clause string) (a account, found bool, err error) {
	if !usernamePattern.MatchString(username) {
		return account{}, false, nil // PostgreSQL refuses some texts
	}
	err = q.Get(ctx, &a, "SELECT * FROM accounts WHERE username = ?"+clause, username)
	if errors.Is(err, db.ErrNoRows) {
		return account{}, false, nil
	}
	return a, err == nil, err
}

// save changes the row of an account.
func save(ctx context.Context, tx *db.Tx, a account) error {
	_, err := tx.Exec(ctx, `UPDATE accounts SET role = ?, host_role = ?, host_seen_at = ?, tenant = ?,
		password_hash = ?, epoch = ?, updated_at = ? WHERE id = ?`,
		a.Role, a.HostRole, a.HostSeen, a.Tenant, a.PasswordHash, a.Epoch, a.UpdatedAt, a.ID)
	return err
}

// seen stores what the host says about an account, and returns the account with it.
func seen(ctx context.Context, tx *db.Tx, a account, host pam.Account, now time.Time) (account, error) {
	a.HostRole, a.HostSeen = hostRole(host), db.At(now)
	_, err := tx.Exec(ctx, "UPDATE accounts SET host_role = ?, host_seen_at = ? WHERE id = ?", a.HostRole, a.HostSeen, a.ID)
	return a, err
}
