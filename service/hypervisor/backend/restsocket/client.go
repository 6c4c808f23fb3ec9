//go:build linux

package restsocket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

const (
	// maxAnswer limits the size of a response body, in bytes. The largest is Cloud Hypervisor's
	// description of a VM with all its devices.
	maxAnswer = 1 << 20
	maxHeader = 16 << 10
	// callLimit is the timeout of every call.
	callLimit = 30 * time.Second
)

// Call is a request to a program's API.
type Call struct {
	Method, Path string
	Body         any // sent as JSON; nil: no body
}

func (c Call) String() string { return c.Method + " " + c.Path }

// Do sends a call and decodes the response into out, unless out is nil. If the program refuses, the
// error is a fault with its message: Conflict for 4xx, Unavailable otherwise.
func (v *VM) Do(ctx context.Context, c Call, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var body io.Reader
	if c.Body != nil {
		text, err := json.Marshal(c.Body)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, c.Method, "http://localhost"+c.Path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if c.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	answer, err := v.http.Do(req)
	if err != nil {
		if v.process.HasEnded() {
			return fault.Wrap(fault.Conflict, err, "the VM has ended")
		}
		return fmt.Errorf("%s: %s: %w", v.name, c, err)
	}
	defer func() { _ = answer.Body.Close() }() // all that is wanted of it was read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %s: %w", v.name, c, err)
	case len(text) > maxAnswer:
		return fmt.Errorf("%s: %s: the answer is longer than %d bytes", v.name, c, maxAnswer)
	case answer.StatusCode/100 != 2:
		return v.refusal(c, answer.StatusCode, text)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s: %s: the answer is not as documented: %w", v.name, c, err)
	}
	return nil
}

// refusal returns the fault for a response with a status other than 2xx.
func (v *VM) refusal(c Call, status int, text []byte) error {
	kind := fault.Unavailable
	if status/100 == 4 {
		kind = fault.Conflict
	}
	return fault.New(kind, "%s refused %s (%d): %s", v.name, c, status, printable(message(text)))
}

// message extracts the error message of a response: Firecracker's fault_message, Cloud Hypervisor's
// list of causes, or the text itself.
func message(text []byte) string {
	var one struct {
		Message string `json:"fault_message"`
	}
	if json.Unmarshal(text, &one) == nil && one.Message != "" {
		return one.Message
	}
	var causes []string
	if json.Unmarshal(text, &causes) == nil && len(causes) > 0 {
		joined := causes[0]
		for _, cause := range causes[1:] {
			joined += ": " + cause
		}
		return joined
	}
	return string(text)
}

// client returns an HTTP client for the API of the VM's process. It uses one connection per call,
// so that each connection's peer is checked and none is left half read.
func (v *VM) client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return v.dialSocket(ctx, APISocket)
			},
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it answers with a redirection") },
	}
}
