package httpserve_test

import (
	"fmt"
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
