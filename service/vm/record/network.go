package record

import (
	"context"
	"fmt"
	"slices"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/netpolicy"
)

// NetworkGroup is a security group of a tenant, or of netpolicy.EveryTenant.
type NetworkGroup struct {
	Tenant    string                   `db:"tenant"`
	Name      string                   `db:"name"`
	Document  db.JSON[netpolicy.Group] `db:"document"`
	CreatedAt db.Time                  `db:"created_at"`
	UpdatedAt db.Time                  `db:"updated_at"`
}

// NetworkPolicy is a network policy in Cilium's form of a tenant, or of netpolicy.EveryTenant. The
// document is as it was given.
type NetworkPolicy struct {
	Tenant    string                  `db:"tenant"`
	Name      string                  `db:"name"`
	Document  db.JSON[map[string]any] `db:"document"`
	CreatedAt db.Time                 `db:"created_at"`
	UpdatedAt db.Time                 `db:"updated_at"`
}

// maxNetworkDocuments is the most groups, and the most network policies, of a tenant.
const maxNetworkDocuments = 500

// documentKind is a kind of document with a name.
type documentKind struct{ table, what, action string }

var (
	groups   = documentKind{"network_groups", "security group", "network.group"}
	policies = documentKind{"network_policies", "network policy", "network.policy"}
)

// OnNetworkChange has f called after each commit of what policies of VMs may depend on: VMs, groups
// and policies. It must be called before the store is used.
func (s *Store) OnNetworkChange(f func()) { s.networkChanged = f }

// networkChange announces a change that a transaction is about to commit.
func (s *Store) networkChange(tx *db.Tx) {
	if s.networkChanged != nil {
		tx.OnCommit(s.networkChanged)
	}
}

// documentScope returns the documents that the caller sees: those of its tenant, and of every tenant.
func documentScope(c caller.Caller) db.Scope {
	switch {
	case c.SeesAll():
		return db.All()
	case c.Role != "":
		return db.Where("tenant IN (?, ?)", c.Tenant, netpolicy.EveryTenant)
	}
	return db.Scope{}
}

// NetworkOwner returns the tenant that a new document is of: that of the caller, or what an admin of
// everything asks for, which is every tenant unless it says so.
func NetworkOwner(c caller.Caller, asked *string) (string, error) {
	switch {
	case !c.SeesAll():
		if asked != nil && *asked != c.Tenant {
			return "", fault.New(fault.Denied, "tenant: is not the tenant of your token")
		}
		return c.Tenant, nil
	case asked == nil || *asked == netpolicy.EveryTenant:
		return netpolicy.EveryTenant, nil
	case *asked == "":
		return "", nil
	}
	return *asked, CheckTenant("tenant", *asked)
}

// NetworkGroups lists groups in the caller's scope by name, starting after a key (DocumentKey). tenant
// narrows the list; nil does not.
func (s *Store) NetworkGroups(
	ctx context.Context, tenant *string, after string, limit int,
) (all []NetworkGroup, err error) {
	return all, s.documents(ctx, groups, tenant, after, limit, &all)
}

// NetworkPolicies lists network policies as NetworkGroups does groups.
func (s *Store) NetworkPolicies(
	ctx context.Context, tenant *string, after string, limit int,
) (all []NetworkPolicy, err error) {
	return all, s.documents(ctx, policies, tenant, after, limit, &all)
}

// DocumentKey is what lists of groups and network policies are ordered by.
func DocumentKey(tenant, name string) string { return name + " " + tenant }

func (s *Store) documents(ctx context.Context, k documentKind, tenant *string, after string, limit int, all any) error {
	scope := documentScope(caller.From(ctx)).And("name || ' ' || tenant > ?", after)
	if tenant != nil {
		scope = scope.And("tenant = ?", *tenant)
	}
	condition, args := scope.SQL()
	return s.db.Select(ctx, all, "SELECT * FROM "+k.table+" WHERE "+condition+" ORDER BY name || ' ' || tenant LIMIT ?",
		append(args, limit)...)
}

// NetworkGroup returns a group in the caller's scope by its name: that of the caller's tenant, or else
// that of every tenant. If several tenants have one, an admin of everything says which with tenant.
func (s *Store) NetworkGroup(ctx context.Context, name string, tenant *string) (NetworkGroup, error) {
	return named[NetworkGroup](ctx, s.db, groups, name, tenant, func(r NetworkGroup) string { return r.Tenant })
}

// NetworkPolicy returns a network policy as NetworkGroup does a group.
func (s *Store) NetworkPolicy(ctx context.Context, name string, tenant *string) (NetworkPolicy, error) {
	return named[NetworkPolicy](ctx, s.db, policies, name, tenant, func(r NetworkPolicy) string { return r.Tenant })
}

func named[T any](
	ctx context.Context, q db.Querier, k documentKind, name string, tenant *string, tenantOf func(T) string,
) (out T, err error) {
	c := caller.From(ctx)
	scope := documentScope(c).And("name = ?", name)
	if tenant != nil {
		scope = scope.And("tenant = ?", *tenant)
	}
	condition, args := scope.SQL()
	var found []T
	query := "SELECT * FROM " + k.table + " WHERE " + condition + " ORDER BY tenant LIMIT 2"
	if err := q.Select(ctx, &found, query, args...); err != nil {
		return out, err
	}
	if len(found) == 2 && !c.SeesAll() {
		found = slices.DeleteFunc(found, func(r T) bool { return tenantOf(r) == netpolicy.EveryTenant })
	}
	switch len(found) {
	case 0:
		return out, fault.New(fault.NotFound, "there is no such %s", k.what)
	case 1:
		return found[0], nil
	}
	return out, fault.New(fault.Conflict,
		"several tenants have a %s named %s; say which one's with ?tenant=NAME, or ?tenant=* for that of every tenant", k.what, name)
}

// lockNetwork makes changes to groups, policies and identities wait for each other.
func lockNetwork(ctx context.Context, tx *db.Tx) (n networkNumbers, err error) {
	return n, tx.Get(ctx, &n, "SELECT next_identity, next_network FROM network_numbers WHERE id = 1"+tx.ForUpdate())
}

type networkNumbers struct {
	Identity int64 `db:"next_identity"`
	Network  int64 `db:"next_network"`
}

// PutNetworkGroup adds a group, or replaces the one with its name. The caller has checked it.
func (s *Store) PutNetworkGroup(ctx context.Context, tenant string, g netpolicy.Group) (out NetworkGroup, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := lockNetwork(ctx, tx); err != nil {
			return err
		}
		for i, r := range g.Rules {
			if r.Group != "" && r.Group != g.Name {
				if err := groupExists(ctx, tx, fmt.Sprintf("rules[%d].group", i), tenant, r.Group); err != nil {
					return err
				}
			}
		}
		if err := s.putDocument(ctx, tx, groups, tenant, g.Name, db.JSON[netpolicy.Group]{V: g}); err != nil {
			return err
		}
		return tx.Get(ctx, &out, "SELECT * FROM network_groups WHERE tenant = ? AND name = ?", tenant, g.Name)
	})
	return out, err
}

// PutNetworkPolicy adds a network policy, or replaces the one with its name. The caller has checked it.
func (s *Store) PutNetworkPolicy(
	ctx context.Context, tenant, name string, document map[string]any,
) (out NetworkPolicy, err error) {
	err = s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := lockNetwork(ctx, tx); err != nil {
			return err
		}
		if err := s.putDocument(ctx, tx, policies, tenant, name, db.JSON[map[string]any]{V: document}); err != nil {
			return err
		}
		return tx.Get(ctx, &out, "SELECT * FROM network_policies WHERE tenant = ? AND name = ?", tenant, name)
	})
	return out, err
}

func (s *Store) putDocument(ctx context.Context, tx *db.Tx, k documentKind, tenant, name string, document any) error {
	now := db.At(s.now())
	changed, err := tx.Exec(ctx, "UPDATE "+k.table+" SET document = ?, updated_at = ? WHERE tenant = ? AND name = ?",
		document, now, tenant, name)
	if err != nil {
		return err
	}
	if changed == 0 {
		var n int
		if err := tx.Get(ctx, &n, "SELECT COUNT(*) FROM "+k.table+" WHERE tenant = ?", tenant); err != nil {
			return err
		}
		if n >= maxNetworkDocuments {
			return fault.New(fault.Invalid, "there are %d of this kind already, which is the most that a tenant may have", n)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO "+k.table+" (tenant, name, document, created_at, updated_at) VALUES (?, ?, ?, ?, ?)",
			tenant, name, document, now, now); err != nil {
			return err
		}
	}
	return s.noteNetwork(ctx, tx, k.action+".put", tenant, name)
}

func (s *Store) noteNetwork(ctx context.Context, tx *db.Tx, action, tenant, name string) error {
	s.networkChange(tx)
	e := audit.Entry{Action: action, Target: name, Tenant: tenant}
	if tenant == netpolicy.EveryTenant {
		e.Tenant, e.Message = "", "of every tenant"
	}
	return s.note(ctx, tx, e)
}

// groupExists returns a fault that names the field if a tenant may not name a group.
func groupExists(ctx context.Context, tx *db.Tx, field, tenant, name string) error {
	var n int
	err := tx.Get(ctx, &n, "SELECT COUNT(*) FROM network_groups WHERE name = ? AND tenant IN (?, ?)",
		name, tenant, netpolicy.EveryTenant)
	if err == nil && n == 0 && tenant != netpolicy.EveryTenant {
		err = fault.InvalidField(field, "there is no security group %s", name)
	}
	return err
}

// DeleteNetworkGroup removes a group that no VM is in and no rule names.
func (s *Store) DeleteNetworkGroup(ctx context.Context, name string, tenant *string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := lockNetwork(ctx, tx); err != nil {
			return err
		}
		g, err := named(ctx, tx, groups, name, tenant, func(r NetworkGroup) string { return r.Tenant })
		if err != nil {
			return err
		}
		if err := unused(ctx, tx, &g); err != nil {
			return err
		}
		return s.deleteDocument(ctx, tx, groups, g.Tenant, name)
	})
}

// DeleteNetworkPolicy removes a network policy.
func (s *Store) DeleteNetworkPolicy(ctx context.Context, name string, tenant *string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		if _, err := lockNetwork(ctx, tx); err != nil {
			return err
		}
		p, err := named(ctx, tx, policies, name, tenant, func(r NetworkPolicy) string { return r.Tenant })
		if err != nil {
			return err
		}
		return s.deleteDocument(ctx, tx, policies, p.Tenant, name)
	})
}

func (s *Store) deleteDocument(ctx context.Context, tx *db.Tx, k documentKind, tenant, name string) error {
	if tenant == netpolicy.EveryTenant && !caller.From(ctx).SeesAll() {
		return fault.New(fault.Denied, "the %s %s is of every tenant; only an admin without a tenant may remove it", k.what, name)
	}
	if _, err := tx.Exec(ctx, "DELETE FROM "+k.table+" WHERE tenant = ? AND name = ?", tenant, name); err != nil {
		return err
	}
	return s.noteNetwork(ctx, tx, k.action+".delete", tenant, name)
}

// deleteDocuments removes the groups and network policies of a tenant that is removed: they must not
// apply to VMs of another one that gets its name.
func (s *Store) deleteDocuments(ctx context.Context, tx *db.Tx, tenant string) error {
	s.networkChange(tx)
	for _, k := range []documentKind{groups, policies} {
		if _, err := tx.Exec(ctx, "DELETE FROM "+k.table+" WHERE tenant = ?", tenant); err != nil {
			return err
		}
	}
	return nil
}

// unused returns a fault that names what uses a group.
func unused(ctx context.Context, tx *db.Tx, g *NetworkGroup) error {
	inUse := func(by string) error {
		return fault.New(fault.Conflict, "the security group %s is used by %s", g.Name, by).WithCode("group_in_use")
	}
	var all []NetworkGroup
	if err := tx.Select(ctx, &all, "SELECT * FROM network_groups ORDER BY tenant, name"); err != nil {
		return err
	}
	own := map[string]bool{} // tenants with a group of this name
	for _, other := range all {
		own[other.Tenant] = own[other.Tenant] || other.Name == g.Name
	}
	meant := func(tenant string) bool { // a name means the tenant's group, or else that of every tenant
		return tenant == g.Tenant || g.Tenant == netpolicy.EveryTenant && !own[tenant]
	}
	for _, other := range all {
		if other.Name != g.Name && meant(other.Tenant) && slices.Contains(other.Document.V.GroupNames(), g.Name) {
			return inUse("the security group " + other.Name)
		}
	}
	var vms []struct {
		Name     string                    `db:"name"`
		Tenant   string                    `db:"tenant"`
		Document db.JSON[netpolicy.Policy] `db:"document"`
	}
	if err := tx.Select(ctx, &vms, `SELECT v.name, v.tenant, p.document FROM vm_policies p JOIN vms v ON v.id = p.vm_id
		WHERE v.deleted_at IS NULL ORDER BY v.name`); err != nil {
		return err
	}
	for _, v := range vms {
		if meant(v.Tenant) && slices.Contains(v.Document.V.GroupNames(), g.Name) {
			return inUse("the VM " + v.Name)
		}
	}
	return nil
}
