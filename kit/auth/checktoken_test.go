package auth_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

func TestShortTokensAreRefusedAndMediumOnesWarnedOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		token         string
		wrong, warned string // parts of the fault and of the warning; empty: none
	}{
		{"", "printable", ""},
		{"x", "at least 16 characters", ""},
		{strings.Repeat("x", 15), "at least 16 characters", ""},
		{strings.Repeat("x", 16), "", "fewer than 32 characters"},
		{strings.Repeat("x", 31), "", "fewer than 32 characters"},
		{strings.Repeat("x", 32), "", ""},
		{auth.NewToken("mst_"), "", ""},
		{strings.Repeat("x ", 32), "printable", ""},
		{strings.Repeat("é", 32), "printable", ""},
		{strings.Repeat("x", 4097), "printable", ""},
	} {
		warning, err := auth.CheckToken("token", tt.token)
		if (err != nil) != (tt.wrong != "") || (warning != "") != (tt.warned != "") {
			t.Errorf("%.40q: %q, %v", tt.token, warning, err)
		}
		if err != nil &&
			(!fault.Is(err, fault.Invalid) || fault.From(err).Field != "token" || !strings.Contains(err.Error(), tt.wrong)) {
			t.Errorf("%.40q: %v", tt.token, err)
		}
		if !strings.Contains(warning, tt.warned) || warning != "" && !strings.HasPrefix(warning, "token: ") {
			t.Errorf("%.40q: %q", tt.token, warning)
		}
		if len(tt.token) > 1 &&
			(strings.Contains(warning, tt.token) || err != nil && strings.Contains(err.Error(), tt.token)) {
			t.Errorf("the token is told: %q, %v", warning, err)
		}
	}
}

func TestATokenIsSendableIfBearerReadsIt(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"a", "a.b-c_~+/=", "a b", " a", "a\t", "é", "", strings.Repeat("a", 4096), strings.Repeat("a", 4097)} {
		r, _ := http.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		if _, ok := auth.Bearer(r); ok != auth.Sendable(token) {
			t.Errorf("%.40q: Bearer says %v, Sendable %v", token, ok, auth.Sendable(token))
		}
	}
}
