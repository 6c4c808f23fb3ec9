package list

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Page is a validated request for a page of a list.
type Page struct {
	Limit int    // maximum number of items, at least 1
	After string // the key of the previous page's last item; empty at the start
}

// maxCursor limits a cursor's text, in bytes. A key may hold a name of 128 characters and an ID of
// 128 characters, which JSON may write with six bytes each.
const maxCursor = 4096

// ParsePage parses the optional query parameters limit and cursor. def is the default limit. A
// limit outside 1 to maximum or a damaged cursor is a fault of kind Invalid. An empty cursor means
// the start of the list.
func ParsePage(limit *int, cursor *string, def, maximum int) (Page, error) {
	p := Page{Limit: def}
	if limit != nil {
		if *limit < 1 || *limit > maximum {
			return Page{}, fault.InvalidField("limit", "must be between 1 and %d, not %d", maximum, *limit)
		}
		p.Limit = *limit
	}
	if cursor != nil && *cursor != "" {
		var err error
		if p.After, err = DecodeCursor(*cursor); err != nil {
			return Page{}, err
		}
	}
	return p, nil
}

// EncodeCursor returns the opaque cursor for the page after key: its base64url without padding (RFC
// 4648 section 5). It is neither encrypted nor authenticated, so the key must be one that the
// caller may know.
func EncodeCursor(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// DecodeCursor is the inverse of EncodeCursor. The key is untrusted input: UTF-8 without NUL (which
// databases refuse), not empty, at most 3072 bytes. Anything else is a fault of kind Invalid.
func DecodeCursor(cursor string) (string, error) {
	if cursor == "" || len(cursor) > maxCursor || strings.ContainsAny(cursor, "\r\n") {
		return "", badCursor()
	}
	key, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || !utf8.Valid(key) || bytes.IndexByte(key, 0) >= 0 {
		return "", badCursor()
	}
	return string(key), nil
}

func badCursor() error {
	return fault.InvalidField("cursor", "is not one that this list has given out; start again without it")
}

// NextLink returns the value of a Link header (RFC 8288) for the next page: the path and query of
// the request with the cursor replaced. It is a relative reference, so that it is also correct
// behind a proxy.
func NextLink(here *url.URL, cursor string) string {
	// Two leading slashes would make the reference name another host (RFC 3986
	// section 4.2).
	path := "/" + strings.TrimLeft(here.EscapedPath(), "/")
	q := here.Query()
	q.Set("cursor", cursor)
	return "<" + path + "?" + q.Encode() + `>; rel="next"`
}
