package identity_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/identity"
)

func ptr[T any](v T) *T { return &v }

func TestAnAssignedRoleTakesThePlaceOfTheHosts(t *testing.T) {
	engines(t, func(w *world) {
		w.add("root", identity.Admin, "")
		w.host.set("anna", 1000, "sudo")
		if s := w.login("anna"); s.Role != identity.Admin {
			w.Errorf("%+v", s)
		}
		assign := func(role identity.Role) identity.Account {
			w.Helper()
			a, err := w.Update(w.Context(), identity.System, "anna", identity.Change{Role: &role})
			if err != nil {
				w.Fatal(err)
			}
			return a
		}
		if a := assign(identity.Viewer); a.Role != identity.Viewer || a.HostRole != identity.Admin || a.Assigned != identity.Viewer {
			w.Errorf("%+v", a)
		}
		if s := w.login("anna"); s.Role != identity.Viewer {
			w.Errorf("%+v", s)
		}
		w.host.set("anna", 1000)
		w.login("anna")
		assign(identity.Admin)
		last := w.events[len(w.events)-1]
		if last.Action != "account.update" || last.Detail["above_the_hosts"] != true || last.Detail["role"] != identity.Admin {
			w.Errorf("a role above the host's does not show: %+v", last)
		}
		if s := w.login("anna"); s.Role != identity.Admin {
			w.Errorf("%+v", s)
		}
		if a := assign(""); a.Role != identity.User || a.Assigned != "" {
			w.Errorf("%+v", a)
		}
		// Before the first login.
		a, err := w.Create(w.Context(), identity.System, identity.NewAccount{Username: "bert", Source: identity.Host, Role: identity.Viewer, Tenant: "t1"})
		if err != nil || a.HostRole != "" || a.Role != identity.Viewer {
			w.Errorf("%+v, %v", a, err)
		}
		w.host.set("bert", 1001, "wheel")
		if s := w.login("bert"); s.Role != identity.Viewer || s.Tenant != "t1" || s.UserID != a.ID {
			w.Errorf("%+v", s)
		}
	})
}

func TestTheLastAdminStays(t *testing.T) {
	engines(t, func(w *world) {
		w.add("anna", identity.Admin, "")
		w.add("bert", identity.User, "")
		w.add("carl", identity.Admin, "t1") // not of everything
		for name, err := range map[string]error{
			"removed":         w.Remove(w.Context(), identity.System, "anna"),
			"demoted":         second(w.Update(w.Context(), identity.System, "anna", identity.Change{Role: ptr(identity.User)})),
			"given to tenant": second(w.Update(w.Context(), identity.System, "anna", identity.Change{Tenant: ptr("t1")})),
		} {
			if f := fault.From(err); f == nil || f.Kind != fault.Conflict || f.Code != "last_admin" {
				w.Errorf("%s: %v", name, err)
			}
		}
		if s := w.login("anna"); s.Role != identity.Admin || s.Tenant != "" {
			w.Errorf("%+v", s)
		}
		if err := w.Remove(w.Context(), identity.System, "bert"); err != nil {
			w.Error(err)
		}
		// One of the host counts while the host's may sign in.
		w.host.set("dora", 0)
		w.login("dora")
		alone := w.start(func(cfg *identity.Config) { cfg.Host = nil })
		w.refused("without the host", alone.Remove(w.Context(), identity.System, "anna"), fault.Conflict, "")
		if err := w.Remove(w.Context(), identity.System, "anna"); err != nil {
			w.Error(err)
		}
		w.refused("the host's", w.Remove(w.Context(), identity.System, "dora"), fault.Conflict, "")
	})
}

func TestOfTwoAdminsWhoRemoveEachOtherOneStays(t *testing.T) {
	replicas(t, func(w *world, other *identity.Service) {
		for round := range 20 {
			anna, bert := fmt.Sprint("anna", round), fmt.Sprint("bert", round)
			w.add(anna, identity.Admin, "")
			w.add(bert, identity.Admin, "")
			if round > 0 {
				if err := w.Remove(w.Context(), identity.System, "last"); err != nil {
					w.Fatal(err)
				}
			}
			var work sync.WaitGroup
			errs := make([]error, 2)
			work.Go(func() { errs[0] = w.Remove(w.Context(), identity.System, anna) })
			work.Go(func() { errs[1] = other.Remove(w.Context(), identity.System, bert) })
			work.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				w.Fatalf("round %d: %v", round, errs)
			}
			w.add("last", identity.Admin, "")
			for _, left := range []string{anna, bert} {
				_ = w.Remove(w.Context(), identity.System, left)
			}
		}
	})
}

func TestAnAdminOfATenantManagesNothingElse(t *testing.T) {
	engines(t, func(w *world) {
		w.add("root", identity.Admin, "")
		w.add("ours", identity.Admin, "t1")
		w.add("theirs", identity.User, "t2")
		w.host.set("hosted", 0)
		w.login("hosted")
		if _, err := w.Update(w.Context(), identity.System, "hosted", identity.Change{Role: ptr(identity.Viewer), Tenant: ptr("t1")}); err != nil {
			w.Fatal(err)
		}
		by := w.caller("ours")
		page, total, err := w.Accounts(w.Context(), by, 0, 10)
		if err != nil || total != 2 || len(page) != 2 || page[0].Username != "hosted" || page[1].Username != "ours" {
			w.Errorf("%+v, %d, %v", page, total, err)
		}
		for _, username := range []string{"root", "theirs", "nobody", "a\x00", "a\xff", "..", strings.Repeat("a", 10_000)} {
			w.refused(username+" read", second(w.Account(w.Context(), by, username)), fault.NotFound, "")
			w.refused(username+" removed", w.Remove(w.Context(), by, username), fault.NotFound, "")
			w.refused(username+" changed", second(w.Update(w.Context(), by, username, identity.Change{Role: ptr(identity.Viewer)})), fault.NotFound, "")
		}
		w.refused("a way out", second(w.Update(w.Context(), by, "ours", identity.Change{Tenant: ptr("")})), fault.Denied, "")
		w.refused("an account elsewhere", second(w.Create(w.Context(), by, identity.NewAccount{
			Username: "new", Source: identity.Local, Password: password, Role: identity.User, Tenant: "t2",
		})), fault.Denied, "")
		// The host's account would be an admin of everything again.
		w.refused("a removal of the host's", w.Remove(w.Context(), by, "hosted"), fault.Denied, "")
		w.refused("no more assignment", second(w.Update(w.Context(), by, "hosted", identity.Change{Role: ptr(identity.Role(""))})), fault.Denied, "")
		w.refused("an account of the host", second(w.Create(w.Context(), by, identity.NewAccount{
			Username: "daemon", Source: identity.Host, Role: identity.Viewer,
		})), fault.Denied, "")
		a, err := w.Create(w.Context(), by, identity.NewAccount{Username: "new", Source: identity.Local, Password: password, Role: identity.User})
		if err != nil || a.Tenant != "t1" {
			w.Errorf("%+v, %v", a, err)
		}
		w.refused("a name that is taken elsewhere", second(w.Create(w.Context(), by, identity.NewAccount{
			Username: "theirs", Source: identity.Local, Password: password, Role: identity.User,
		})), fault.Conflict, "")
		if err := w.Remove(w.Context(), by, "new"); err != nil {
			w.Error(err)
		}
	})
}

func TestOnlyAdminsManageAccounts(t *testing.T) {
	engines(t, func(w *world) {
		w.add("root", identity.Admin, "")
		w.add("anna", identity.User, "")
		for _, by := range []identity.Caller{w.caller("anna"), {}} {
			if page, total, err := w.Accounts(w.Context(), by, 0, 10); err != nil || total != 0 || len(page) != 0 {
				w.Errorf("%+v, %d, %v", page, total, err)
			}
			w.refused("read", second(w.Account(w.Context(), by, "root")), fault.NotFound, "")
			w.refused("removed", w.Remove(w.Context(), by, "root"), fault.Denied, "")
			w.refused("changed", second(w.Update(w.Context(), by, "anna", identity.Change{Role: ptr(identity.Admin)})), fault.Denied, "")
			w.refused("created", second(w.Create(w.Context(), by, identity.NewAccount{
				Username: "new", Source: identity.Local, Password: password, Role: identity.Admin,
			})), fault.Denied, "")
		}
	})
}

func TestBadAccountsAreNamedAndNotMade(t *testing.T) {
	engines(t, func(w *world) {
		good := identity.NewAccount{Username: "anna", Source: identity.Local, Password: password, Role: identity.User}
		for field, changes := range map[string][]func(*identity.NewAccount){
			"username": {
				func(n *identity.NewAccount) { n.Username = "" },
				func(n *identity.NewAccount) { n.Username = "a b" },
				func(n *identity.NewAccount) { n.Username = strings.Repeat("a", 65) },
			},
			"password": {
				func(n *identity.NewAccount) { n.Password = "" },
				func(n *identity.NewAccount) { n.Password = "seven77" },
				func(n *identity.NewAccount) { n.Password = strings.Repeat("x", 1025) },
				func(n *identity.NewAccount) { n.Source = identity.Host },
			},
			"role": {
				func(n *identity.NewAccount) { n.Role = "" },
				func(n *identity.NewAccount) { n.Role = "root" },
				func(n *identity.NewAccount) { n.Role = "Admin" },
			},
			"source": {func(n *identity.NewAccount) { n.Source = "" }, func(n *identity.NewAccount) { n.Source = "ldap" }},
			"tenant": {
				func(n *identity.NewAccount) { n.Tenant = "a b" },
				func(n *identity.NewAccount) { n.Tenant = "a\x00" },
				func(n *identity.NewAccount) { n.Tenant = strings.Repeat("a", 65) },
			},
		} {
			for i, change := range changes {
				n := good
				change(&n)
				_, err := w.Create(w.Context(), identity.System, n)
				if f := fault.From(err); f == nil || f.Kind != fault.Invalid || f.Field != field {
					w.Errorf("%s %d: %v", field, i, err)
				}
			}
		}
		if _, total, err := w.Accounts(w.Context(), identity.System, 0, 10); err != nil || total != 0 {
			w.Errorf("%d accounts, %v", total, err)
		}
		if _, err := w.Create(w.Context(), identity.System, good); err != nil {
			w.Fatal(err)
		}
		_, err := w.Create(w.Context(), identity.System, good)
		if f := fault.From(err); f == nil || f.Code != "account_exists" {
			w.Errorf("again: %v", err)
		}
		for field, c := range map[string]identity.Change{
			"role": {Role: ptr(identity.Role(""))}, "tenant": {Tenant: ptr("a\n")}, "password": {Password: ptr("short")},
		} {
			_, err := w.Update(w.Context(), identity.System, "anna", c)
			if f := fault.From(err); f == nil || f.Kind != fault.Invalid || f.Field != field {
				w.Errorf("%s: %v", field, err)
			}
		}
		w.host.set("bert", 1000)
		w.login("bert")
		w.refused("a password for the host's", second(w.Update(w.Context(), identity.System, "bert", identity.Change{Password: ptr(password)})), fault.Invalid, "")
	})
}

func TestAPageOfAccountsIsInTheOrderOfNames(t *testing.T) {
	engines(t, func(w *world) {
		for _, name := range []string{"d", "b", "a", "c"} {
			w.add(name, identity.User, "")
		}
		page, total, err := w.Accounts(w.Context(), identity.System, 1, 2)
		if err != nil || total != 4 || len(page) != 2 || page[0].Username != "b" || page[1].Username != "c" {
			w.Errorf("%+v, %d, %v", page, total, err)
		}
	})
}
