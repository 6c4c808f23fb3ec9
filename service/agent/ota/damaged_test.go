package ota

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/transfer"
)

// serveArtifact serves content with ranges, and notes which were asked for.
func serveArtifact(t *testing.T, content []byte) (url string, ranges func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Header.Get("Range"))
		mu.Unlock()
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(asked)
	}
}

func TestADamagedPartIsFetchedOnceMoreFromTheStart(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("firmware"), 8<<10)
	for name, c := range map[string]struct {
		wanted []byte // what the control plane says the artifact is
		part   []byte
		end    Phase
		ranges []string
	}{
		"zeroes after a loss of power":    {content, make([]byte, len(content)/2), Succeeded, []string{"bytes=32768-", ""}},
		"as long as all of it":            {content, make([]byte, len(content)), Succeeded, []string{"bytes=65536-", ""}},
		"the server's artifact is wrong":  {bytes.Repeat([]byte("hardware"), 8<<10), content[:100], Failed, []string{"bytes=100-", ""}},
		"it has another size than wanted": {content[:1000], content[:100], Failed, []string{"bytes=100-", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, ranges := serveArtifact(t, content)
			s := newSite(t, "exit 0", nil)
			w := s.want("pump", "r1", url, c.wanted)
			s.stop()
			for suffix, text := range map[string][]byte{transfer.PartSuffix: c.part, transfer.TagSuffix: []byte(`"v1"`)} {
				if err := os.WriteFile(s.path("ota/"+w.Request.SHA256+suffix), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s.ask(w)
			s.start()
			states, message := s.told("r1")
			if end := states[len(states)-1]; end != c.end {
				t.Errorf("%v: %s", states, message)
			}
			if got := ranges(); !slices.Equal(got, c.ranges) {
				t.Errorf("asked for the ranges %q, want %q", got, c.ranges)
			}
			s.checkEmpty()
		})
	}
}

func TestOnlyTheKeyOtaIsAnUpdate(t *testing.T) {
	t.Parallel()
	request := `{"request_id":"r","version":"2","url":"https://x/fw","sha256":"` + strings.Repeat("a", 64) + `"}`
	for _, c := range []struct {
		desired, reported string
		wanted            bool
	}{
		{`{"ota":` + request + `}`, `{}`, true},
		{`{"OTA":` + request + `}`, `{}`, false},
		{`{"Ota":` + request + `,"ota":null}`, `{}`, false},
		{`{"ota":` + request + `,"OTA":5}`, `{}`, true},
		// A program at the site may report a key OTA of its own.
		{`{"ota":` + request + `}`, `{"OTA":{"request_id":"r","state":"succeeded"}}`, true},
		{`{"ota":` + request + `}`, `{"ota":{"request_id":"r","state":"succeeded"},"OTA":{"request_id":"r","state":"pending"}}`, false},
	} {
		w, err := ParseTwin("pump", json.RawMessage(c.desired), json.RawMessage(c.reported))
		if err != nil || (w.Request != nil) != c.wanted {
			t.Errorf("%s, %s: %+v, %v", c.desired, c.reported, w.Request, err)
		}
	}
}

func TestARequestThatNoHookCouldBeToldOfIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ id, version, field string }{
		{`r`, `2`, ""},
		{`r\u0000`, `2`, "desired.ota.request_id"},
		{`r\n`, `2`, "desired.ota.request_id"},
		{`r`, `2\u0000`, "desired.ota.version"},
	} {
		desired := `{"ota":{"request_id":"` + c.id + `","version":"` + c.version + `","url":"https://x/fw","sha256":"` +
			strings.Repeat("a", 64) + `"}}`
		w, err := ParseTwin("pump", json.RawMessage(desired), json.RawMessage(`{}`))
		if c.field == "" {
			if err != nil || w.Request == nil {
				t.Errorf("%s: %v", desired, err)
			}
			continue
		}
		if f := fault.From(err); w.Request != nil || f == nil || f.Field != c.field {
			t.Errorf("%s: %+v, %v", desired, w.Request, err)
		}
	}
}
