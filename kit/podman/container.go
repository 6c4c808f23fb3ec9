package podman

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Container is the result of inspecting a container.
type Container struct {
	ID           string `json:"Id"`
	Name         string
	Image        string // the id
	RestartCount int
	State        State
	Config       struct {
		Labels map[string]string
	}
}

// State is the state of a container.
type State struct {
	Status     string // created, running, paused, stopping, stopped, exited, removing
	Running    bool
	ExitCode   int
	OOMKilled  bool
	StartedAt  time.Time
	FinishedAt time.Time
	Error      string
}

// CreateContainer creates a container without starting it, and returns its id.
func (c *Client) CreateContainer(ctx context.Context, spec Spec) (string, error) {
	var out struct {
		ID string `json:"Id"`
	}
	err := c.call(ctx, http.MethodPost, "/containers/create", nil, spec, &out)
	return out.ID, err
}

// StartContainer starts a container. It does nothing if the container is running.
func (c *Client) StartContainer(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(name)+"/start", nil, nil, nil)
}

// StopContainer asks a container to stop and kills it after grace. It does nothing if the container
// is not running.
func (c *Client) StopContainer(ctx context.Context, name string, grace time.Duration) error {
	query := url.Values{"timeout": {strconv.Itoa(int(grace.Seconds()))}}
	return c.call(ctx, http.MethodPost, "/containers/"+url.PathEscape(name)+"/stop", query, nil, nil)
}

// RemoveContainer removes a container with its anonymous volumes, killing it if it is running. It
// is not an error if the container does not exist.
func (c *Client) RemoveContainer(ctx context.Context, name string) error {
	// The documentation of Podman 4 has "v", and the program reads "volumes".
	query := url.Values{"force": {"true"}, "v": {"true"}, "volumes": {"true"}}
	err := c.call(ctx, http.MethodDelete, "/containers/"+url.PathEscape(name), query, nil, nil)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// InspectContainer returns the details of a container.
func (c *Client) InspectContainer(ctx context.Context, name string) (Container, error) {
	var out Container
	err := c.call(ctx, http.MethodGet, "/containers/"+url.PathEscape(name)+"/json", nil, nil, &out)
	return out, err
}

// Listed is an entry of ListContainers.
type Listed struct {
	ID     string `json:"Id"`
	Names  []string
	Labels map[string]string
	State  string
}

// ListContainers returns all containers, running or not, whose label has this value.
func (c *Client) ListContainers(ctx context.Context, label, value string) ([]Listed, error) {
	filters, err := json.Marshal(map[string][]string{"label": {label + "=" + value}})
	if err != nil {
		return nil, err
	}
	var out []Listed
	err = c.call(
		ctx, http.MethodGet, "/containers/json", url.Values{"all": {"true"}, "filters": {string(filters)}}, nil, &out,
	)
	return out, err
}

// CheckHealth runs a container's health check once and reports whether it passed.
func (c *Client) CheckHealth(ctx context.Context, name string) (bool, error) {
	var out struct{ Status string }
	err := c.call(ctx, http.MethodGet, "/containers/"+url.PathEscape(name)+"/healthcheck", nil, nil, &out)
	return out.Status == "healthy", err
}

// maxLog limits the result of Logs, in bytes.
const maxLog = 64 << 10

// Logs returns the last lines that a container wrote to standard output and
// standard error, at most 64 KiB of them.
func (c *Client) Logs(ctx context.Context, name string, lines int) (string, error) {
	query := url.Values{"stdout": {"true"}, "stderr": {"true"}, "tail": {strconv.Itoa(lines)}}
	r, err := c.send(ctx, http.MethodGet, "/containers/"+url.PathEscape(name)+"/logs", query, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Body.Close() }() // read to its end, or abandoned
	return readLog(r.Body)
}

// readLog decodes the frames of a log: a header of 8 bytes, whose last four are the length of the
// following text.
func readLog(r io.Reader) (string, error) {
	var text bytes.Buffer
	for text.Len() < maxLog {
		var header [8]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return text.String(), err
		}
		length := int64(binary.BigEndian.Uint32(header[4:]))
		if _, err := io.CopyN(&text, r, min(length, int64(maxLog-text.Len()))); err != nil {
			return text.String(), err
		}
	}
	return text.String(), nil
}
