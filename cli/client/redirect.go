package client

import (
	"fmt"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
)

// HTTP returns an HTTP client for requests with credentials. It follows no redirects: net/http would
// send a password on to another host, and a token to another port of the same one.
func HTTP(transport http.RoundTripper, timeout time.Duration) *http.Client {
	return &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: refuseRedirect}
}

func refuseRedirect(r *http.Request, via []*http.Request) error {
	from, to := via[0].URL, output.Escape(r.URL.Redacted())
	return exit.Hinted(
		fmt.Errorf("%s://%s redirects to %s, which gets no credentials", from.Scheme, from.Host, to),
		"if that is the server, name it with --server",
	)
}
