package vm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
)

// watched reads the stream of a VM's events.
type watched struct {
	*manager
	lines *bufio.Scanner
	end   func()
}

// watch opens the stream at a path. last is the Last-Event-ID; empty: none.
func (m *manager) watch(path, token, last string) *watched {
	m.Helper()
	ctx, cancel := context.WithCancel(m.Context())
	m.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", m.url+path, http.NoBody)
	if err != nil {
		m.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		m.Fatal(err)
	}
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		m.Fatalf("%s: %s", path, res.Status)
	}
	return &watched{m, bufio.NewScanner(res.Body), func() { cancel(); _ = res.Body.Close() }}
}

// next returns the next event, or false at the end of the stream.
func (w *watched) next() (e vmapi.Event, more bool) {
	w.Helper()
	id := ""
	for w.lines.Scan() {
		line := w.lines.Text()
		if value, is := strings.CutPrefix(line, "id: "); is {
			id = value
		}
		if data, is := strings.CutPrefix(line, "data: "); is {
			if err := json.Unmarshal([]byte(data), &e); err != nil || strconv.FormatInt(e.Id, 10) != id {
				w.Fatalf("event %s: %s (%v)", id, data, err)
			}
			return e, true
		}
		if strings.HasPrefix(line, "{") {
			w.Fatalf("an error within the stream: %s", line)
		}
	}
	return e, false
}

func TestEventsOfAVMAreFollowedThroughARenameUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	engines(t, func(m *manager) {
		ada, bert, vera := m.user("ada", "admin", "acme"), m.user("bert", "admin", "beta"), m.user("vera", "viewer", "acme")
		m.made("web", ada)
		m.call("GET", "/api/vms/web/events/stream", bert, nil).Want(404)
		m.call("GET", "/api/vms/none/events/stream", ada, nil).Want(404)
		m.call("GET", "/api/vms/web/events/stream", "", nil).Want(401)
		m.call("HEAD", "/api/vms/web/events/stream", ada, nil).Want(200)

		now, again := m.watch("/api/vms/web/events/stream", vera, ""), m.watch("/api/vms/web/events/stream", ada, "1")
		m.call("PATCH", "/api/vms/web", ada, object{"name": "www"}).Want(200)
		first, _ := now.next()
		if first.Actor != "ada" || first.Kind != "config" {
			t.Errorf("a stream without Last-Event-ID begins with %+v", first)
		}
		for want := int64(2); want <= first.Id; want++ {
			if e, more := again.next(); !more || e.Id != want {
				t.Errorf("after event %d, the stream has %+v (%v)", want-1, e, more)
			}
		}
		m.call("POST", "/api/vms/www/start", ada, nil).Want(202)
		m.settled("www", ada)
		m.call("POST", "/api/vms/www/stop", ada, object{"force": true}).Want(200)
		for seen := first; !strings.Contains(seen.Message, "stopped"); {
			e, more := now.next()
			if !more || e.Id != seen.Id+1 {
				t.Fatalf("after %+v, the stream has %+v (%v)", seen, e, more)
			}
			seen = e
		}
		m.call("DELETE", "/api/vms/www", ada, nil).Want(204)
		for more := true; more; {
			_, more = now.next() // until the VM is gone
		}
		m.call("GET", "/api/vms/www/events/stream", ada, nil).Want(404)
	})
}

func TestAStreamOfEventsEndsWithTheSessionAndWithTheService(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.made("web", m.admin)
	ann := m.user("ann", "admin", "")
	stream := m.watch("/api/vms/web/events/stream", ann, "")
	m.call("PATCH", "/api/vms/web", ann, object{"description": "the web"}).Want(200)
	if _, more := stream.next(); !more {
		t.Error("the stream ended by itself")
	}
	m.call("POST", "/api/auth/logout", ann, nil)
	for more := true; more; {
		_, more = stream.next()
	}
	stream = m.watch("/api/vms/web/events/stream", m.admin, "")
	m.call("PATCH", "/api/vms/web", m.admin, object{"description": "a web"}).Want(200)
	if _, more := stream.next(); !more {
		t.Error("the stream ended by itself")
	}
	m.again()
	for more := true; more; {
		_, more = stream.next()
	}
}
