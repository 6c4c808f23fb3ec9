package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/api/edge"
)

// receive collects the batches that reach a server.
func receive(t *testing.T, batches *[][]edgeapi.EventInput, s **server) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var b edgeapi.EventBatch
		if err := json.Unmarshal([]byte((*s).body), &b); err != nil {
			t.Error(err)
		}
		*batches = append(*batches, b.Events)
		receipts := make([]edgeapi.EventReceipt, len(b.Events))
		for i, e := range b.Events {
			receipts[i] = edgeapi.EventReceipt{EventId: *e.EventId, Duplicate: *e.EventId == "known"}
		}
		raw, _ := json.Marshal(receipts)
		answer(202, string(raw))(w, r)
	}
}

func TestImportSendsBatchesAndGivesEqualLinesEqualIDs(t *testing.T) {
	t.Parallel()
	const second, third = "01a1fde9-de24-70d8-8d39-beba54f45ac2", "01a1fde9-de24-70d8-8d39-beba54f45ac3"
	var lines strings.Builder
	lines.WriteString(`{"event_id":"known","site_id":"s1","topic":"t","payload":{"big":12345678901234567890}}` + "\n\n")
	for i := range 1000 {
		fmt.Fprintf(&lines, `{"topic":"t","payload":%d}`+"\r\n", i)
	}
	file := writeFile(t, "events.jsonl", strings.TrimSpace(lines.String())) // the last line has no end

	var batches [][]edgeapi.EventInput
	var s *server
	s = serve(t, loadContract(t), map[string]http.HandlerFunc{"IngestEvents": receive(t, &batches, &s)})
	got := run{server: s.URL}.ok(t, "event", "import", file, "--site", second, "-o", "json")
	if !strings.Contains(got.out, `"events": 1001`) || !strings.Contains(got.out, `"duplicates": 1`) || got.err != "" {
		t.Errorf("printed %s%s", got.out, got.err)
	}
	if len(batches) != 2 || len(batches[0]) != 1000 || len(batches[1]) != 1 {
		t.Fatalf("%d batches", len(batches))
	}
	if e := batches[0][0]; *e.EventId != "known" || e.SiteId != "s1" ||
		string(e.Payload) != `{"big":12345678901234567890}` {
		t.Errorf("the first event became %+v", e)
	}
	first := batches
	batches = nil
	run{server: s.URL, stdin: lines.String()}.ok(t, "event", "import", "-", "--site", second)
	ids := map[string]bool{}
	for b := range first {
		for i, e := range first[b] {
			ids[*e.EventId] = true
			if again := batches[b][i]; *again.EventId != *e.EventId {
				t.Fatalf("%q became %q", *e.EventId, *again.EventId)
			}
		}
	}
	if len(ids) != 1001 {
		t.Errorf("%d different ids", len(ids))
	}
	batches = nil
	run{server: s.URL, stdin: lines.String()}.ok(t, "event", "import", "-", "--site", third)
	if *batches[1][0].EventId == *first[1][0].EventId {
		t.Error("the same line of another site has the same id")
	}
}

func TestImportSplitsBatchesBySizeToo(t *testing.T) {
	t.Parallel()
	line := fmt.Sprintf(`{"site_id":"s1","topic":"t","payload":%q}`, strings.Repeat("x", 1<<20-100))
	var batches [][]edgeapi.EventInput
	var s *server
	s = serve(t, loadContract(t), map[string]http.HandlerFunc{"IngestEvents": receive(t, &batches, &s)})
	run{server: s.URL, stdin: strings.Repeat(line+"\n", 9)}.ok(t, "event", "import", "-")
	if len(batches) != 2 || len(batches[0]) != 7 {
		t.Errorf("%d batches", len(batches))
	}
}

func TestImportNamesTheLineThatIsWrong(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), nil)
	for input, want := range map[string]string{
		"{\"site_id\":\"s\",\"topic\":\"t\",\"payload\":1}\nnonsense": "line 2 is not an event",
		`{"topic":"t","payload":1}`:                                   "line 1 has no site_id",
		`{"site_id":"s","payload":1}`:                                 "line 1 has no topic",
		`{"site_id":"s","topic":"t"}`:                                 "line 1 has no payload",
	} {
		if got := (run{server: s.URL, stdin: input}).do(t, "event", "import", "-"); got.code != 1 ||
			!strings.Contains(got.err, want) {
			t.Errorf("%q: %d %s", input, got.code, got.err)
		}
	}
}

func TestImportThatFailsSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	s := serve(t, loadContract(t), map[string]http.HandlerFunc{
		"IngestEvents": answer(507, `{"error":{"code":"storage_failed","message":"disk full","request_id":"q"}}`)})
	got := run{server: s.URL, stdin: `{"site_id":"s","topic":"t","payload":1}`}.do(t, "event", "import", "-")
	if got.code != 1 || !strings.Contains(got.err, "after 0 events: lines 1 to 1: disk full") ||
		!strings.Contains(got.err, "run the same command again") {
		t.Errorf("%d %s", got.code, got.err)
	}
}
