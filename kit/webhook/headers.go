package webhook

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits of CheckHeaders.
const (
	MaxHeaders          = 32
	MaxHeaderNameBytes  = 256
	MaxHeaderValueBytes = 4 << 10
)

// CheckHeaders validates the headers that a customer configures for every message to a target.
// Names are compared ignoring case and must be distinct. It refuses:
//
//   - headers of the connection, the message framing and the host (RFC 9110, 7.6.1
//     and RFC 9112): connection, keep-alive, proxy-*, te, trailer,
//     transfer-encoding, upgrade, host, content-length, expect;
//   - names that carry credentials, because these headers are stored and shown in
//     the clear and the signature is what authenticates a message: authorization,
//     cookie, cookie2, set-cookie, set-cookie2, apikey, x-apikey, and every name
//     that is, or ends after a hyphen in, one of authorization, token, secret,
//     password, passwd, credential, credentials, api-key, access-key (so x-api-key
//     and x-auth-token);
//   - webhook-*, which Client sets;
//   - names that are not tokens of RFC 9110, 5.6.2, and values with control
//     characters or invalid UTF-8;
//   - more than 32 headers, names over 256 bytes, values over 4 KiB.
//
// Faults are of kind Invalid and name the field, for example
// "headers.Authorization", or "headers" where the name itself is unfit to repeat.
// Values are never repeated. Of several faults the first by name is returned.
func CheckHeaders(headers map[string]string) error {
	if len(headers) > MaxHeaders {
		return fault.InvalidField("headers", "must be at most %d, not %d", MaxHeaders, len(headers))
	}
	seen := make(map[string]bool, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if len(name) > MaxHeaderNameBytes {
			return fault.InvalidField(
				"headers", "has a name of %d bytes; at most %d are allowed", len(name), MaxHeaderNameBytes,
			)
		}
		if !httpguts.ValidHeaderFieldName(name) {
			return fault.InvalidField("headers", "has the name %q, which is not a valid header name", name)
		}
		field, lower := "headers."+name, strings.ToLower(name)
		if why := refusedHeader(lower); why != "" {
			return fault.InvalidField(field, "%s", why)
		}
		if seen[lower] {
			return fault.InvalidField(field, "is given twice in different case")
		}
		seen[lower] = true
		if err := checkHeaderValue(field, headers[name]); err != nil {
			return err
		}
	}
	return nil
}

func checkHeaderValue(field, value string) error {
	if len(value) > MaxHeaderValueBytes {
		return fault.InvalidField(field, "must be at most %d bytes, not %d", MaxHeaderValueBytes, len(value))
	}
	if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return fault.InvalidField(field, "must be UTF-8 text without control characters")
	}
	return nil
}

// refusedHeader returns why the lower-case name is refused, or "".
func refusedHeader(name string) string {
	switch name {
	case "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
		"host", "content-length", "expect":
		return "is set by the HTTP connection itself and cannot be chosen"
	case "cookie", "cookie2", "set-cookie", "set-cookie2", "apikey", "x-apikey":
		return credentialHeader
	}
	switch {
	case strings.HasPrefix(name, "proxy-"):
		return "is set by the HTTP connection itself and cannot be chosen"
	case strings.HasPrefix(name, "webhook-"):
		return "is set by the server on every message and cannot be chosen"
	}
	for _, word := range []string{"authorization", "token", "secret", "password", "passwd",
		"credential", "credentials", "api-key", "access-key"} {
		if name == word || strings.HasSuffix(name, "-"+word) {
			return credentialHeader
		}
	}
	return ""
}

const credentialHeader = "carries credentials, which are not kept in headers; verify the webhook signature instead"

// HTTPHeader converts headers to the type that Request uses.
func HTTPHeader(headers map[string]string) http.Header {
	h := make(http.Header, len(headers))
	for name, value := range headers {
		h.Set(name, value)
	}
	return h
}
