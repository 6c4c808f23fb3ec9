package auth_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/auth"
)

func TestTokensHaveThePrefixAnd256RandomBits(t *testing.T) {
	t.Parallel()
	a, b := auth.NewToken("mst_"), auth.NewToken("mst_")
	if a == b || !strings.HasPrefix(a, "mst_") || len(a) != len("mst_")+43 {
		t.Errorf("%s, %s", a, b)
	}
}

func TestHashTokenIsLowerHexSHA256(t *testing.T) {
	t.Parallel()
	// The example of FIPS 180-4.
	if got := auth.HashToken("abc"); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Error(got)
	}
	if !auth.EqualHash(auth.HashToken("a"), auth.HashToken("a")) ||
		auth.EqualHash(auth.HashToken("a"), auth.HashToken("b")) ||
		auth.EqualHash("a", "aa") {
		t.Error("EqualHash is wrong")
	}
}

func TestBearerReadsTheHeaderAndNothingElse(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Bearer abc": "abc", "bearer abc": "abc", "BEARER a.b-c_~+/=": "a.b-c_~+/=",
		"": "", "Bearer": "", "Bearer ": "", "Basic abc": "", "Bearer a b": "", "Bearer  a": "", "Bearer a\tb": "", "Bearer é": "",
		"Bearer " + strings.Repeat("a", 4096): strings.Repeat("a", 4096), "Bearer " + strings.Repeat("a", 4097): "",
	} {
		r, _ := http.NewRequest("GET", "/?access_token=query", nil)
		r.Header.Set("Authorization", header)
		if got, ok := auth.Bearer(r); got != want || ok != (want != "") {
			t.Errorf("%.40q: %.40q, %v", header, got, ok)
		}
	}
	r, _ := http.NewRequest("GET", "/", nil)
	r.Header["Authorization"] = []string{"Bearer a", "Bearer b"}
	if _, ok := auth.Bearer(r); ok {
		t.Error("two headers were accepted")
	}
}
