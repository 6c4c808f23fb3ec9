package rgw

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Within bounds each request with its answer, and maxAnswer the size of the answer in bytes: a thousand keys of the
// largest size, escaped, have less.
const (
	Within    = 12 * time.Second
	maxAnswer = 16 << 20
)

// transport holds requests to what they may take. They end with ctx, also those that come without it.
type transport struct {
	ctx    context.Context
	base   http.RoundTripper
	within time.Duration
}

// RoundTrip sends a request, and returns its answer when it has read all of it.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeoutCause(r.Context(), t.within, errSlow)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	resp, err := t.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, broken(ctx, err)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, broken(ctx, err)
	}
	if len(text) > maxAnswer {
		return nil, errLarge
	}
	if strings.Contains(resp.Header.Get("Content-Type"), "xml") {
		text = legal(text)
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp, nil
}

// broken returns the fault for a request without a whole answer.
func broken(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSlow) {
		return errSlow
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // which the client would put the URL into
		return fault.New(fault.Unavailable, "the object gateway has ended the connection")
	}
	return fault.Wrap(fault.Unavailable, err, "the object gateway cannot be reached")
}

// reference matches references to characters in XML.
var reference = regexp.MustCompile(`&#(x[0-9A-Fa-f]+|[0-9]+);`)

// legal replaces the characters that XML does not have. RGW escapes keys in lists, but not where it repeats a key, such
// as in the name of the next page, and one such key would hide all others.
func legal(text []byte) []byte {
	text = bytes.Map(func(r rune) rune {
		if isLegal(r) {
			return r
		}
		return utf8.RuneError
	}, text)
	return reference.ReplaceAllFunc(text, func(found []byte) []byte {
		digits, base := string(found[2:len(found)-1]), 10
		if digits[0] == 'x' {
			digits, base = digits[1:], 16
		}
		if r, err := strconv.ParseInt(digits, base, 32); err == nil && isLegal(rune(r)) {
			return found
		}
		return []byte(string(utf8.RuneError))
	})
}

// isLegal reports whether XML 1.0 has a character.
func isLegal(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD ||
		r >= 0x10000 && r <= utf8.MaxRune
}
