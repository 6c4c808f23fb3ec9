package relay

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

var (
	errNoUpgrade = fault.New(
		fault.UpgradeRequired, "this answers with a WebSocket only: send the handshake of one (RFC 6455), version 13",
	)
	errBadKey = fault.New(
		fault.Invalid, "the handshake of a WebSocket has one header Sec-WebSocket-Key, of 16 bytes in base64",
	)
	errBody        = fault.New(fault.Invalid, "the handshake of a WebSocket has no body")
	errForeignPage = fault.New(fault.Denied, "a page of another site may not open a socket here").WithCode("browser")
)

// CheckUpgrade returns why a request cannot become a WebSocket, or nil if it can. It applies the
// rules of RFC 6455 section 4.2.1 that the library checks when it responds, and refuses requests with
// a body. Call it before anything is spent or recorded for a socket. Its faults are of kind
// UpgradeRequired, Invalid or, for a page of another site, Denied.
func CheckUpgrade(r *http.Request) error {
	switch keys := r.Header.Values("Sec-WebSocket-Key"); {
	case r.Method != http.MethodGet, !r.ProtoAtLeast(1, 1),
		!hasToken(r.Header, "Connection", "Upgrade"), !hasToken(r.Header, "Upgrade", "websocket"),
		r.Header.Get("Sec-WebSocket-Version") != "13":
		return errNoUpgrade
	case len(keys) != 1 || !isKey(strings.TrimSpace(keys[0])):
		return errBadKey
	case r.ContentLength != 0: // the server would wait for the body when the connection is taken over
		return errBody
	}
	// Commands send no Origin; browsers always do.
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return errForeignPage
		}
	}
	return nil
}

func isKey(text string) bool {
	key, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(key) == 16
}

// hasToken reports whether a token is in a header's lists.
func hasToken(h http.Header, name, token string) bool {
	for _, line := range h.Values(name) {
		for one := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(one), token) {
				return true
			}
		}
	}
	return false
}
