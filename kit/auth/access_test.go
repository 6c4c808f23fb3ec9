package auth_test

import (
	"slices"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
)

type someone struct {
	role  string
	agent bool
}

func table() *auth.Access[someone] {
	return auth.NewAccess([]string{"viewer", "operator", "admin"}, func(s someone) string { return s.role },
		map[string]func(someone) bool{
			"open":  func(someone) bool { return true },
			"agent": func(s someone) bool { return s.agent },
		})
}

func TestEachRungOfTheLadderAdmitsThoseAboveIt(t *testing.T) {
	t.Parallel()
	ladder := []string{"viewer", "operator", "admin"}
	for i, class := range ladder {
		for j, role := range ladder {
			if got := table().Admits(class, someone{role: role}); got != (j >= i) {
				t.Errorf("%s admits %s: %v, want %v", class, role, got, j >= i)
			}
		}
	}
}

func TestClassesBesideTheLadderAdmitByTheirPredicateOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class  string
		caller someone
		want   bool
	}{
		{"agent", someone{agent: true}, true},
		{"agent", someone{role: "admin"}, false},
		{"viewer", someone{agent: true}, false},
		{"open", someone{}, true},
	} {
		if got := table().Admits(c.class, c.caller); got != c.want {
			t.Errorf("%s admits %+v: %v, want %v", c.class, c.caller, got, c.want)
		}
	}
}

func TestUnknownClassesAndRolesAdmitNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		class string
		role  string
	}{{"", "admin"}, {"root", "admin"}, {"root", "root"}, {"", ""}, {"viewer", ""}, {"viewer", "root"}, {"viewer", "Admin"}} {
		if table().Admits(c.class, someone{role: c.role}) {
			t.Errorf("class %q admits role %q", c.class, c.role)
		}
	}
}

func TestATableListsItsClassesAndRefusesOneGivenTwice(t *testing.T) {
	t.Parallel()
	if got, want := table().Classes(), []string{"admin", "agent", "open", "operator", "viewer"}; !slices.Equal(got, want) {
		t.Errorf("classes %v, want %v", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a class both on the ladder and beside it was taken")
		}
	}()
	auth.NewAccess([]string{"agent"}, func(s someone) string { return s.role },
		map[string]func(someone) bool{"agent": func(someone) bool { return true }})
}
