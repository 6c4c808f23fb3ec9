package list_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

func TestParsePageChecksBothParameters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit  int // -1: absent
		cursor string
		want   list.Page
		field  string
	}{
		{-1, "", list.Page{Limit: 20}, ""},
		{1, list.EncodeCursor("k/ü"), list.Page{Limit: 1, After: "k/ü"}, ""},
		{100, "", list.Page{Limit: 100}, ""},
		{0, "", list.Page{}, "limit"},
		{101, "", list.Page{}, "limit"},
		{-1, "***", list.Page{}, "cursor"},
		{-1, list.EncodeCursor("\xff"), list.Page{}, "cursor"},
		{-1, list.EncodeCursor("a\x00"), list.Page{}, "cursor"},
		{-1, "YWI\n", list.Page{}, "cursor"},
		{-1, list.EncodeCursor(strings.Repeat("a", 3073)), list.Page{}, "cursor"},
	} {
		var limit *int
		if c.limit >= 0 {
			limit = &c.limit
		}
		got, err := list.ParsePage(limit, &c.cursor, 20, 100)
		if got != c.want || (err != nil) != (c.field != "") {
			t.Errorf("%+v: %+v, %v", c, got, err)
		}
		if err != nil && (fault.From(err).Field != c.field || !fault.Is(err, fault.Invalid)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if got, err := list.ParsePage(nil, nil, 20, 100); got.Limit != 20 || err != nil {
		t.Error(got, err)
	}
}

func TestNextLinkNeverNamesAnotherHost(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "http://x//evil.example/a", nil)
	if got := list.NextLink(r.URL, "c"); !strings.HasPrefix(got, "</evil.example/a?") {
		t.Error(got)
	}
}

func ExampleNextLink() {
	r := httptest.NewRequest("GET", "/v1/sites?state=up&cursor=b2xk&limit=2", nil)
	fmt.Println(list.NextLink(r.URL, list.EncodeCursor("site-2")))
	// Output: </v1/sites?cursor=c2l0ZS0y&limit=2&state=up>; rel="next"
}

func FuzzDecodeCursor(f *testing.F) {
	f.Add("c2l0ZS0y")
	f.Add("")
	f.Add("YR")
	f.Add("YW\nI")
	f.Fuzz(func(t *testing.T, cursor string) {
		key, err := list.DecodeCursor(cursor)
		if err != nil {
			if fault.From(err).Field != "cursor" || !fault.Is(err, fault.Invalid) {
				t.Errorf("%v", err)
			}
			return
		}
		if key == "" || list.EncodeCursor(key) != cursor {
			t.Errorf("%q decodes to %q, which encodes otherwise", cursor, key)
		}
	})
}

func FuzzNextCursor(f *testing.F) {
	for _, seed := range []string{`</api/v1/agent/twins?cursor=abc&limit=20>; rel="next"`, `<x>; rel=next`, `<?cursor=%zz>; rel="next"`, `</a>; rel="prev", </b?cursor=2>; rel="next"`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, link string) {
		if cursor := rest.NextCursor(http.Header{"Link": {link}}); cursor != "" && !strings.Contains(link, "cursor") &&
			!strings.Contains(link, "%") {
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
		if got := rest.NextCursor(http.Header{"Link": {link}}); got != want {
			t.Errorf("%s: %q, want %q", link, got, want)
		}
	}
}
