package auth_test

import (
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

func TestEachRoleIncludesThoseBelow(t *testing.T) {
	t.Parallel()
	ladder := []auth.Role{auth.None, auth.Viewer, auth.Operator, auth.Admin}
	for i, r := range ladder {
		for j, least := range ladder {
			if r.AtLeast(least) != (i >= j) {
				t.Errorf("%s.AtLeast(%s)", r, least)
			}
		}
		if back, err := auth.ParseRole(r.String()); back != r || err != nil {
			t.Errorf("%s: %v, %v", r, back, err)
		}
	}
}

func TestAValueOffTheLadderPermitsNothing(t *testing.T) {
	t.Parallel()
	r := auth.Role(200)
	if r.AtLeast(auth.Viewer) || r.String() != "none" {
		t.Errorf("%s", r)
	}
	for _, word := range []string{"", "root", "Admin", "ADMIN"} {
		if got, err := auth.ParseRole(word); got != auth.None || !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v, %v", word, got, err)
		}
	}
}
