package driver

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"time"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

const (
	// maxEvent is the longest line of the daemon's event stream, in bytes.
	maxEvent = 64 << 10
	// silence is how long the stream may say nothing. The daemon sends a heartbeat every 15 s.
	silence = time.Minute
)

// Follow reads what happens to VMs on a host until ctx ends or the stream breaks, which is an error.
// changed is called with the daemon's id of a VM that something has happened to, and reset if events
// may be missing. last is the id of the last event of an earlier stream; it returns the newest.
func (d *Driver) Follow(
	ctx context.Context, node, last string, changed func(id string), reset func(),
) (newest string, err error) {
	err = d.Events(ctx, node, last, func(e Event) error {
		if e.ID != "" {
			last = e.ID
		}
		if e.Reset {
			reset()
		} else {
			changed(e.VM)
		}
		return nil
	})
	return last, err
}

func acceptEvents(_ context.Context, r *http.Request) error {
	r.Header.Set("Accept", "text/event-stream")
	return nil
}

// stream reads server-sent events for the tenant of a place until ctx ends or the stream breaks, which
// is an error.
func (d *Driver) stream(
	ctx context.Context, at Place,
	open func(ctx context.Context, c *hypervisorapi.Client) (*http.Response, error), use func(kind, id, data string),
) error {
	c, err := d.at(at.Node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(forTenant(ctx, at.Tenant))
	defer cancel()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	response, err := open(ctx, c)
	if err == nil && response.StatusCode != http.StatusOK {
		_, err = rest.Read(response, nil)
	}
	if err != nil {
		return d.translate(ctx, at, err)
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	var kind, id, data string
	for lines.Scan() {
		watchdog.Reset(silence)
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			kind = value
		case "id":
			id = value
		case "data":
			data = value
		}
		if lines.Text() != "" {
			continue
		}
		use(kind, id, data)
		kind, id, data = "", "", ""
	}
	if err := lines.Err(); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the event stream of the hypervisor daemon broke")
	}
	return fault.New(fault.Unavailable, "the hypervisor daemon ended its event stream")
}
