package httpserve

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// RefuseForeign protects services that require no credentials, where only the listening address
// keeps others out. It returns a fault for requests that a foreign web page makes a browser send.
// The Host must be an IP address, localhost or one of names, and not any other name that resolves
// to this machine (DNS rebinding). The request must not come from a page of another origin.
func RefuseForeign(r *http.Request, names ...string) error {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	isName := func(name string) bool { return name != "" && strings.EqualFold(name, host) }
	if err != nil && !Loopback(host) && !slices.ContainsFunc(names, isName) {
		return fault.New(
			fault.Denied,
			"without credentials in its settings, this service answers to addresses and its own name only, not to %.100q; give it credentials, or ask for its address",
			host,
		).WithCode("foreign_host")
	}
	if origin, sent := r.Header["Origin"]; sent && (len(origin) != 1 || !sameHost(origin[0], r.Host)) {
		return errForeignPage
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // no browser, direct navigation, our own page
		return nil
	}
	return errForeignPage
}

var errForeignPage = fault.New(
	fault.Denied,
	"without credentials in its settings, this service does not answer pages of other sites",
).WithCode("browser")

// sameHost reports whether a page's origin has the requested host.
func sameHost(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}
