package httpserve_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/httpserve"
)

func TestParsePageChecksBothParameters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit  int // -1: absent
		cursor string
		want   httpserve.Page
		field  string
	}{
		{-1, "", httpserve.Page{Limit: 20}, ""},
		{1, httpserve.EncodeCursor("k/ü"), httpserve.Page{Limit: 1, After: "k/ü"}, ""},
		{100, "", httpserve.Page{Limit: 100}, ""},
		{0, "", httpserve.Page{}, "limit"},
		{101, "", httpserve.Page{}, "limit"},
		{-1, "***", httpserve.Page{}, "cursor"},
		{-1, httpserve.EncodeCursor("\xff"), httpserve.Page{}, "cursor"},
		{-1, httpserve.EncodeCursor("a\x00"), httpserve.Page{}, "cursor"},
		{-1, "YWI\n", httpserve.Page{}, "cursor"},
		{-1, httpserve.EncodeCursor(strings.Repeat("a", 769)), httpserve.Page{}, "cursor"},
	} {
		var limit *int
		if c.limit >= 0 {
			limit = &c.limit
		}
		got, err := httpserve.ParsePage(limit, &c.cursor, 20, 100)
		if got != c.want || (err != nil) != (c.field != "") {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
		if err != nil && (fault.From(err).Field != c.field || !fault.Is(err, fault.Invalid)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if got, err := httpserve.ParsePage(nil, nil, 20, 100); got.Limit != 20 || err != nil {
		t.Error(got, err)
	}
}

func TestNextLinkNeverNamesAnotherHost(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "http://x//evil.example/a", nil)
	if got := httpserve.NextLink(r, "c"); !strings.HasPrefix(got, "</evil.example/a?") {
		t.Error(got)
	}
}

func ExampleNextLink() {
	r := httptest.NewRequest("GET", "/v1/sites?state=up&cursor=b2xk&limit=2", nil)
	fmt.Println(httpserve.NextLink(r, httpserve.EncodeCursor("site-2")))
	// Output: </v1/sites?cursor=c2l0ZS0y&limit=2&state=up>; rel="next"
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add("c2l0ZS0y")
	f.Add("")
	f.Add("YR")
	f.Add("YW\nI")
	f.Fuzz(func(t *testing.T, cursor string) {
		key, err := httpserve.DecodeCursor(cursor)
		if err != nil {
			if fault.From(err).Field != "cursor" || !fault.Is(err, fault.Invalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if key == "" || httpserve.EncodeCursor(key) != cursor {
			t.Errorf("%q decodes to %q, which encodes otherwise", cursor, key)
		}
	})
}

func FuzzNextCursor(f *testing.F) {
	for _, seed := range []string{`</api/v1/agent/twins?cursor=abc&limit=20>; rel="next"`, `<x>; rel=next`, `<?cursor=%zz>; rel="next"`, `</a>; rel="prev", </b?cursor=2>; rel="next"`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, link string) {
		if cursor := httpserve.NextCursor(http.Header{"Link": {link}}); cursor != "" && !strings.Contains(link, "cursor") && !strings.Contains(link, "%") {
			t.Errorf("%q from %q", cursor, link)
		}
	})
}

func TestTheNextPageIsTheOneThatTheLinkHeaderNames(t *testing.T) {
	t.Parallel()
	for link, want := range map[string]string{
		`</api/v1/agent/twins?cursor=abc&limit=20>; rel="next"`:           "abc",
		`</a?cursor=1>; rel="prev", </b?cursor=2>; title="x"; rel="next"`: "2",
		`</a?cursor=1>; rel="prev"`:                                       "",
		`garbage`:                                                         "",
	} {
		if got := httpserve.NextCursor(http.Header{"Link": {link}}); got != want {
			t.Errorf("%s: %q, want %q", link, got, want)
		}
	}
}
