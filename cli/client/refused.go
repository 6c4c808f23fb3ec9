package client

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/mainstay-infra/mainstay/cli/output"
)

// requestIDHeader carries the id under which the server has logged a request.
const requestIDHeader = "X-Request-Id"

// Refused is the text of an answer that reports an error: what the server says, with
// details such as "code not_found" and the request id, unless what it says has it already.
// An answer that is none of the service's, as a proxy's, has no message; its status stands
// for it.
func Refused(r *http.Response, message, requestID string, details ...string) string {
	if message == "" {
		message = "the server answered " + r.Status
	}
	if id := cmp.Or(requestID, r.Header.Get(requestIDHeader)); id != "" && !strings.Contains(message, id) {
		details = append(details, "request id "+id)
	}
	if len(details) > 0 {
		message = fmt.Sprintf("%s (%s)", message, strings.Join(details, ", "))
	}
	return output.Escape(message)
}
