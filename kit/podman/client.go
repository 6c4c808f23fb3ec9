package podman

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// maxAnswer limits how much of a response is read, in bytes.
const maxAnswer = 16 << 20

// Client is a client of one Podman.
type Client struct {
	socket string
	http   *http.Client
}

// New returns a client of the Podman that listens on a Unix socket. It connects on first use.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{
		socket: socket,
		http:   &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 4}},
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Version returns the version of Podman, for example "4.3.1".
func (c *Client) Version(ctx context.Context) (string, error) {
	var v struct{ Version string }
	err := c.call(ctx, http.MethodGet, "/version", nil, nil, &v)
	return v.Version, err
}

// call sends a request and decodes the response into out, unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	r, err := c.send(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }() // read to its end, or abandoned
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(out); err != nil {
		return fault.Wrap(fault.Internal, err, "Podman's answer to %s %s cannot be read", method, path)
	}
	return nil
}

// content is a body that is sent as it is.
type content []byte

// send sends a request. A response with status 400 or above is an error. The caller must close the
// body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, in any) (*http.Response, error) {
	var body io.Reader
	kind := "application/json"
	switch in := in.(type) {
	case nil:
	case content:
		body, kind = bytes.NewReader(in), "application/octet-stream"
	default:
		raw, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(raw)
	}
	target := url.URL{Scheme: "http", Host: "podman", Path: "/v4.0.0/libpod" + path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", kind)
	}
	r, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return nil, fault.Wrap(
				fault.Unavailable, err,
				"Podman does not answer at %s; start it with: systemctl enable --now podman.socket", c.socket,
			)
		}
		return nil, fault.Wrap(fault.Unavailable, err, "Podman at %s hung up", c.socket)
	}
	if r.StatusCode >= 400 {
		defer func() { _ = r.Body.Close() }() // the body is not needed
		return nil, answerFault(r)
	}
	return r, nil
}

// answerFault converts Podman's error body to a fault.
func answerFault(r *http.Response) error {
	var e struct {
		Message string `json:"message"`
	}
	raw, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10)) // an unreadable body is not shown
	if json.Unmarshal(raw, &e) != nil || e.Message == "" {
		e.Message = r.Status
	}
	kind := fault.Internal
	switch r.StatusCode {
	case http.StatusBadRequest:
		kind = fault.Invalid
	case http.StatusNotFound:
		kind = fault.NotFound
	case http.StatusConflict:
		kind = fault.Conflict
	}
	return fault.New(kind, "Podman: %s", e.Message)
}

// Pull policies (--pull of podman run).
const (
	PullAlways  = "always"
	PullMissing = "missing"
	PullNever   = "never"
)

// Pull makes an image available according to the policy, and returns its id.
func (c *Client) Pull(ctx context.Context, reference, policy string) (string, error) {
	r, err := c.send(
		ctx, http.MethodPost, "/images/pull", url.Values{"reference": {reference}, "policy": {policy}}, nil,
	)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Body.Close() }() // read to its end, or abandoned
	// The response is a stream of lines, and errors are part of it, after the status 200.
	for lines := json.NewDecoder(r.Body); ; {
		var line struct {
			ID    string `json:"id"`
			Error string `json:"error"`
		}
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF):
			return "", fault.New(fault.Unavailable, "Podman: the pull of %s ended without a result", reference)
		case err != nil && ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil:
			return "", fault.Wrap(fault.Unavailable, err, "Podman: the pull of %s was cut off", reference)
		case line.Error != "":
			return "", fault.New(fault.Unavailable, "Podman: pull %s: %s", reference, line.Error)
		case line.ID != "":
			return line.ID, nil
		}
	}
}
