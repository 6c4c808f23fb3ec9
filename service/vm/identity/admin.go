package identity

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Account is an account as admins see it.
type Account struct {
	ID       string
	Username string
	Source   Source
	// Role is the role that counts. Of an account of the host, HostRole is what its groups gave when
	// the host was last asked, or empty if it never was. Assigned is what an admin has put in its
	// place, or empty.
	Role, HostRole, Assigned Role
	Tenant                   string // empty: all tenants
	TwoFactor                bool
	CreatedAt, UpdatedAt     time.Time
}

// NewAccount describes an account to be created.
type NewAccount struct {
	Username string
	// Source is Local, or Host in order to assign a role or a tenant before the first login.
	Source   Source
	Password string // local accounts only
	// Role is required for a local account. Empty, an account of the host has the host's role.
	Role   Role
	Tenant string
}

// Change describes a change of an account. Nil leaves a part as it is.
type Change struct {
	// Role is the new role. An empty one gives an account of the host the host's role again.
	Role     *Role
	Tenant   *string
	Password *string // local accounts only; ends the account's tokens
	// DisableTwoFactor removes the second factor, for a user who has lost it.
	DisableTwoFactor bool
}

// minPassword is how many characters a password has at least (NIST SP 800-63B section 5.1.1.1).
const minPassword = 8

// maxTenant is the length of the longest name of a tenant.
const maxTenant = 64

// System is the service itself, which may create the first account.
var System = Caller{Username: "system", Role: Admin}

const accountColumns = `a.*, COALESCE(f.enabled, FALSE) AS two_factor FROM accounts a
	LEFT JOIN second_factors f ON f.account_id = a.id`

type accountView struct {
	account
	TwoFactor bool `db:"two_factor"`
}

func (v accountView) public() Account {
	out := Account{
		ID: v.ID, Username: v.Username, Source: v.Source, Role: v.effective(), Tenant: v.Tenant,
		TwoFactor: v.TwoFactor, CreatedAt: v.CreatedAt.Time, UpdatedAt: v.UpdatedAt.Time,
	}
	if v.Source == Host {
		out.HostRole, out.Assigned = v.HostRole, v.account.Role
	}
	return out
}

// scope is what an admin sees.
func scope(by Caller) db.Scope {
	switch {
	case by.Role != Admin:
		return db.Scope{}
	case by.Tenant != "":
		return db.Where("a.tenant = ?", by.Tenant)
	}
	return db.All()
}

// Accounts returns a page of the accounts that an admin sees, in the order of their names, and how
// many there are.
func (s *Service) Accounts(ctx context.Context, by Caller, offset, limit int) (page []Account, total int, err error) {
	where, args := scope(by).SQL()
	if err := s.db.Get(ctx, &total, "SELECT COUNT(*) FROM accounts a WHERE "+where, args...); err != nil {
		return nil, 0, err
	}
	var found []accountView
	err = s.db.Select(ctx, &found, "SELECT "+accountColumns+" WHERE "+where+" ORDER BY a.username LIMIT ? OFFSET ?",
		append(args, max(limit, 0), max(offset, 0))...)
	page = make([]Account, len(found))
	for i, v := range found {
		page[i] = v.public()
	}
	return page, total, err
}

// Account returns an account that an admin sees. The fault is NotFound if there is none.
func (s *Service) Account(ctx context.Context, by Caller, username string) (Account, error) {
	return view(ctx, s.db, by, username)
}

func view(ctx context.Context, q db.Querier, by Caller, username string) (Account, error) {
	if !usernamePattern.MatchString(username) { // PostgreSQL refuses some texts
		return Account{}, db.NotFound(db.ErrNoRows, "there is no account %.64q", username)
	}
	where, args := scope(by).And("a.username = ?", username).SQL()
	var v accountView
	err := q.Get(ctx, &v, "SELECT "+accountColumns+" WHERE "+where, args...)
	return v.public(), db.NotFound(err, "there is no account %.64q", username)
}

// Create adds an account. The faults are Invalid, Conflict with the code "account_exists", and Denied
// for what an admin with a tenant may not do.
func (s *Service) Create(ctx context.Context, by Caller, n NewAccount) (out Account, err error) {
	if by.Tenant != "" && n.Tenant == "" {
		n.Tenant = by.Tenant
	}
	if err := n.check(by); err != nil {
		return Account{}, err
	}
	a := newAccount(n.Username, n.Source, s.now())
	a.Role, a.Tenant = n.Role, n.Tenant
	if n.Source == Local {
		if a.PasswordHash, err = s.cfg.Hasher.HashPassword(ctx, n.Password); err != nil {
			return Account{}, err
		}
	}
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if err := tx.Insert(ctx, "accounts", a); err != nil {
			return err
		}
		tx.OnCommit(func() { s.changed(a.Username) })
		if out, err = view(ctx, tx, by, a.Username); err != nil {
			return err
		}
		return s.cfg.Record(ctx, tx, Event{
			By: by, Action: "account.create", Target: a.Username, Tenant: a.Tenant, Message: "account created",
			Detail: map[string]any{"source": a.Source, "role": a.Role},
		})
	})
	if db.IsUnique(err) {
		err = fault.New(fault.Conflict, "there is an account %q already", n.Username).WithCode("account_exists")
	}
	return out, err
}

func (n NewAccount) check(by Caller) error {
	if by.Role != Admin {
		return errNotAdmin
	}
	if err := checkUsername(n.Username); err != nil {
		return err
	}
	switch {
	case n.Source != Local && n.Source != Host:
		return fault.InvalidField("source", "must be local or pam")
	case n.Source == Host && n.Password != "":
		return fault.InvalidField("password", "is the host's for an account of the host")
	case !n.Role.Valid() && (n.Source == Local || n.Role != ""):
		return fault.InvalidField("role", "must be viewer, user or admin")
	case by.Tenant != "" && n.Tenant != by.Tenant:
		return fault.New(fault.Denied, "the account must be of your own tenant")
	case by.Tenant != "" && n.Source == Host:
		return errHostAccount
	}
	if n.Source == Local {
		if err := checkPassword(n.Password); err != nil {
			return err
		}
	}
	return checkTenant(n.Tenant)
}

var (
	errNotAdmin    = fault.New(fault.Denied, "this takes the role admin")
	errHostAccount = fault.New(fault.Denied, "this takes an admin without a tenant, since the account is the host's")
	errLastAdmin   = fault.New(
		fault.Conflict, "this is the last admin without a tenant; make another account an admin first",
	).WithCode("last_admin")
)

func checkPassword(password string) error {
	if utf8.RuneCountInString(password) < minPassword {
		return fault.InvalidField("password", "must have at least %d characters", minPassword)
	}
	return nil
}

func checkTenant(tenant string) error {
	if len(tenant) > maxTenant || strings.ContainsFunc(tenant, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fault.InvalidField("tenant", "must have at most %d printable ASCII characters without spaces", maxTenant)
	}
	return nil
}

// Update changes an account. The faults are Invalid, NotFound, Denied for what an admin with a tenant
// may not do, and Conflict with the code "last_admin".
func (s *Service) Update(ctx context.Context, by Caller, username string, c Change) (out Account, err error) {
	hash := ""
	if c.Password != nil {
		if err := checkPassword(*c.Password); err != nil {
			return Account{}, err
		}
		if hash, err = s.cfg.Hasher.HashPassword(ctx, *c.Password); err != nil {
			return Account{}, err
		}
	}
	err = s.change(ctx, by, username, func(tx *db.Tx, a account) (account, error) {
		before := a
		if err := c.apply(&a, by, hash); err != nil {
			return a, err
		}
		a.UpdatedAt = db.At(s.now())
		if err := save(ctx, tx, a); err != nil {
			return a, err
		}
		if c.DisableTwoFactor {
			if err := removeFactor(ctx, tx, a.ID); err != nil {
				return a, err
			}
		}
		if out, err = view(ctx, tx, System, username); err != nil {
			return a, err
		}
		return a, s.cfg.Record(ctx, tx, Event{
			By: by, Action: "account.update", Target: username, Tenant: a.Tenant, Message: "account changed",
			Detail: c.detail(before, a),
		})
	})
	return out, err
}

// apply changes the account, if the admin may.
func (c Change) apply(a *account, by Caller, hash string) error {
	if c.Role != nil {
		switch {
		case !c.Role.Valid() && (a.Source == Local || *c.Role != ""):
			return fault.InvalidField("role", "must be viewer, user or admin")
		case *c.Role == "" && by.Tenant != "":
			return errHostAccount
		}
		a.Role = *c.Role
	}
	if c.Tenant != nil && *c.Tenant != a.Tenant {
		if err := checkTenant(*c.Tenant); err != nil {
			return err
		}
		if by.Tenant != "" {
			return fault.New(fault.Denied, "the account must stay in your own tenant")
		}
		a.Tenant, a.Epoch = *c.Tenant, newEpoch()
	}
	if c.Password != nil {
		if a.Source != Local {
			return fault.InvalidField("password", "is the host's for an account of the host")
		}
		a.PasswordHash, a.Epoch = hash, newEpoch()
	}
	return nil
}

// detail is what the event tells about a change.
func (c Change) detail(before, after account) map[string]any {
	out := map[string]any{}
	if before.effective() != after.effective() || before.Role != after.Role {
		out["role"], out["role_before"] = after.effective(), before.effective()
		if after.Source == Host {
			out["assigned"] = after.Role
			out["above_the_hosts"] = after.Role != "" && after.Role.rank() > after.HostRole.rank()
		}
	}
	if before.Tenant != after.Tenant {
		out["tenant"], out["tenant_before"] = after.Tenant, before.Tenant
	}
	if c.Password != nil {
		out["password"] = "changed"
	}
	if c.DisableTwoFactor {
		out["two_factor"] = "disabled"
	}
	return out
}

// Remove removes an account and ends its tokens. The faults are those of Update.
func (s *Service) Remove(ctx context.Context, by Caller, username string) error {
	return s.change(ctx, by, username, func(tx *db.Tx, a account) (account, error) {
		if by.Tenant != "" && a.Source == Host {
			return a, errHostAccount
		}
		for _, query := range []string{
			"DELETE FROM second_factors WHERE account_id = ?",
			"DELETE FROM revoked_tokens WHERE account_id = ?", // the epoch of the account is gone
			"DELETE FROM accounts WHERE id = ?",
		} {
			if _, err := tx.Exec(ctx, query, a.ID); err != nil {
				return a, err
			}
		}
		e := Event{By: by, Action: "account.remove", Target: username, Tenant: a.Tenant, Message: "account removed"}
		return account{}, s.cfg.Record(ctx, tx, e)
	})
}

// change runs f on an account that the admin sees, and refuses a change that leaves no admin.
func (s *Service) change(
	ctx context.Context, by Caller, username string, f func(tx *db.Tx, a account) (account, error),
) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if by.Role != Admin {
			return errNotAdmin
		}
		if err := lock(ctx, tx, "admins"); err != nil {
			return err
		}
		a, found, err := find(ctx, tx, username, tx.ForUpdate())
		if err == nil && (!found || by.Tenant != "" && a.Tenant != by.Tenant) {
			err = fault.New(fault.NotFound, "there is no account %.64q", username)
		}
		if err != nil {
			return err
		}
		tx.OnCommit(func() { s.changed(username) })
		after, err := f(tx, a)
		if err != nil || !s.rules(a) || s.rules(after) {
			return err
		}
		others, err := s.othersRule(ctx, tx)
		if err == nil && !others {
			err = errLastAdmin
		}
		return err
	})
}

// rules reports whether an account is an admin of everything.
func (s *Service) rules(a account) bool {
	return a.effective() == Admin && a.Tenant == "" &&
		(a.Source == Local && !s.cfg.HostOnly || a.Source == Host && s.cfg.Host != nil)
}

// othersRule reports whether there is an admin of everything.
func (s *Service) othersRule(ctx context.Context, tx *db.Tx) (bool, error) {
	var n int
	err := tx.Get(ctx, &n, `SELECT COUNT(*) FROM accounts WHERE tenant = ''
		AND (source = 'local' AND ? AND role = 'admin' OR source = 'pam' AND ?
			AND (role = 'admin' OR role = '' AND host_role = 'admin'))`, !s.cfg.HostOnly, s.cfg.Host != nil)
	return n > 0, err
}
