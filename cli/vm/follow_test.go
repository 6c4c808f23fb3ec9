package vm_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

// patience is the time limit for anything in these tests.
const patience = 20 * time.Second

// refusing is a server that responds with 409 without asking for the body, and counts the bytes
// that arrive nevertheless until the connection ends.
func refusing(t *testing.T) (url string, read <-chan int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	count := make(chan int64, 1)
	go func() {
		defer close(count)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		r := bufio.NewReader(conn)
		if asks, err := http.ReadRequest(r); err != nil || asks.Header.Get("Expect") != "100-continue" {
			t.Errorf("the body comes unasked: %v", err)
		}
		body := `{"error":"there is one already","code":"name_taken","request_id":"q"}`
		_, _ = fmt.Fprintf(
			conn,
			"HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			len(body), body,
		)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		n, _ := io.Copy(io.Discard, r) // until the client hangs up, in whatever way
		count <- n
	}()
	return "http://" + listener.Addr().String(), count
}

func operation(state string, more string) string {
	return `{"id":"o1","kind":"backup","state":"` + state + `","progress":0.5,"created_at":"2026-01-02T03:04:05Z"` + more + `}`
}

func TestAnOperationIsFollowedToItsEndWhichIsTheExitCode(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		last, err string
		code      int
	}{
		{operation("succeeded", `,"error":"","backup_id":"b7"`), "", 0},
		{operation("failed", `,"error":"disk \u001b[31mfull"`), `the operation o1 failed: disk \x1b[31mfull`, 1},
		{operation("cancelled", `,"error":""`), "the operation o1 was canceled", 1},
	} {
		var looks atomic.Int32
		s := daemontest.Serve(
			t,
			map[string]http.HandlerFunc{"GetOperation": func(w http.ResponseWriter, r *http.Request) {
				body := operation("running", `,"error":""`)
				if looks.Add(1) == 3 {
					body = tt.last
				}
				daemontest.Answer(200, body)(w, r)
			}},
		)
		got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "backup", "create", daemontest.VMID)
		if got.Code != tt.code || !strings.Contains(got.Err, tt.err) || looks.Load() != 3 {
			t.Errorf("%d %s after %d looks", got.Code, got.Err, looks.Load())
		}
		if tt.code == 0 && got.Out != "Made the backup b7 of "+daemontest.VMID+".\n" {
			t.Errorf("%q", got.Out)
		}
	}
}

func TestCtrlCCancelsTheOperationAndWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	var canceled atomic.Bool
	s := daemontest.Serve(t, map[string]http.HandlerFunc{
		"GetOperation": func(w http.ResponseWriter, r *http.Request) {
			if !canceled.Load() {
				interrupt()
				<-r.Context().Done() // as a daemon that waits for the end
			}
			daemontest.Answer(200, operation("cancelled", `,"error":""`))(w, r)
		},
		"CancelOperation": func(w http.ResponseWriter, r *http.Request) {
			canceled.Store(true)
			daemontest.Answer(200, operation("running", `,"error":""`))(w, r)
		},
	})
	got := daemontest.Run{URL: s.URL}.Do(t, ctx, "image", "build-demo")
	if got.Code != 1 || !strings.Contains(got.Err, "mainstay: the operation o1 was canceled; what it did is undone") {
		t.Errorf("%d %s", got.Code, got.Err)
	}
	if s.Called() != "BuildDemoImage GetOperation CancelOperation GetOperation" {
		t.Errorf("called %s", s.Called())
	}
}

func TestExecStreamsBothOutputsAndPassesTheExitCodeOn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, answer string
		code         int
		err          string
	}{
		{"a code", `{"stream":"stdout","data":"b3V0"}` + "\n" + `{"stream":"stderr","data":"ZXJy"}` + "\n" + `{"exit_code":7}`, 7, "err"},
		{"success", `{"stream":"stdout","data":"b3V0"}` + "\n" + `{"stream":"stderr","data":"ZXJy"}` + "\n" + `{"exit_code":0}`, 0, "err"},
		{"a time that was over", `{"stream":"stdout","data":"b3V0"}` + "\n" + `{"exit_code":137,"error":"the time was over"}`, 137, "mainstay: the program did not run to its end: the time was over\n"},
		{"nothing to run", `{"stream":"stdout","data":"b3V0"}` + "\n" + `{"error":"the guest refuses: argv: there is no program ls in PATH"}`, 127, "mainstay: the program did not run to its end: the guest refuses: argv: there is no program ls in PATH\n"},
		{"no file", `{"stream":"stdout","data":"b3V0"}` + "\n" + `{"error":"the guest refuses: fork/exec /ls: no such file or directory"}`, 127, "mainstay: the program did not run to its end: the guest refuses: fork/exec /ls: no such file or directory\n"},
		{"a file that is no program", `{"stream":"stdout","data":"b3V0"}` + "\n" + `{"error":"the guest refuses: fork/exec /ls: permission denied"}`, 126, "mainstay: the program did not run to its end: the guest refuses: fork/exec /ls: permission denied\n"},
		{"a program of another machine", `{"stream":"stdout","data":"b3V0"}` + "\n" + `{"error":"the guest refuses: fork/exec /ls: exec format error"}`, 126, "mainstay: the program did not run to its end: the guest refuses: fork/exec /ls: exec format error\n"},
		{"no folder", `{"stream":"stdout","data":"b3V0"}` + "\n" + `{"error":"the guest refuses: cwd: /tmp is not a folder"}`, 125, "mainstay: the program did not run to its end: the guest refuses: cwd: /tmp is not a folder\n"},
		{"an end that never came", `{"stream":"stdout","data":"b3V0"}` + "\n", 125, "mainstay: the answer broke off before the program ended: unexpected EOF\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := daemontest.Serve(t, map[string]http.HandlerFunc{"Exec": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/x-ndjson")
				_, _ = io.WriteString(w, tt.answer)
			}})
			got := daemontest.Run{
				URL:   s.URL,
				Stdin: strings.NewReader("typed"),
			}.Do(t, t.Context(), "vm", "exec", daemontest.VMID, "--cwd", "/tmp", "--", "ls", "-l")
			if got.Code != tt.code || got.Out != "out" || got.Err != tt.err {
				t.Errorf("%d %q %q", got.Code, got.Out, got.Err)
			}
			if body := s.Last().Body; body != `{"argv":["ls","-l"],"cwd":"/tmp","stdin":"typed","stream":true,"timeout_seconds":60}` {
				t.Errorf("sent %s", body)
			}
		})
	}
}

func TestExecTakesTextOfAMiBAtMost(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, nil)
	for input, want := range map[string]string{"\xff\x00": "is not text", strings.Repeat("x", 1<<20+1): "is larger than 1 MiB"} {
		got := daemontest.Run{
			URL:   s.URL,
			Stdin: strings.NewReader(input),
		}.Do(t, t.Context(), "vm", "exec", "web", "cat")
		if got.Code != 125 || !strings.Contains(got.Err, want) || s.Called() != "" {
			t.Errorf("%d %s", got.Code, got.Err)
		}
	}
}

func TestExecExitsWith125WhenTheFailureIsNotThePrograms(t *testing.T) {
	t.Parallel()
	refuse := daemontest.Answer(409, `{"error":"no agent","code":"agent_not_connected","request_id":"q"}`)
	for line, want := range map[string]string{
		"vm exec web":                           "PROGRAM is missing\nhint: see 'mainstay vm exec --help'",
		"vm exec web --nope -- x":               "unknown flag: --nope\nhint: see 'mainstay vm exec --help'",
		"vm exec web --time-limit 0 -- x":       "--time-limit must be between",
		"vm exec nobody -- x":                   "there is no VM nobody",
		"vm exec web -- x":                      "hint: 'mainstay vm wait VM --for agent'",
		"vm exec web --server http://[::1 -- x": "must be a URL",
	} {
		s := daemontest.Serve(t, map[string]http.HandlerFunc{"Exec": refuse})
		got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), strings.Fields(line)...)
		if got.Code != 125 || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %d %s", line, got.Code, got.Err)
		}
	}
}

func TestWatchedEventsArePrintedOnceEachInTheirOrder(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	event := func(n int) string {
		return fmt.Sprintf(`{"at":"2026-01-02T03:04:0%dZ","kind":"state","message":"m%d"}`, n, n)
	}
	looks := 0
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"ListVMEvents": func(w http.ResponseWriter, r *http.Request) {
		looks++
		switch looks {
		case 1:
			daemontest.Answer(200, "["+event(2)+","+event(1)+"]")(w, r)
		case 2:
			daemontest.Answer(200, "["+event(3)+","+event(2)+","+event(1)+"]")(w, r)
		default:
			interrupt()
			daemontest.Answer(200, "[]")(w, r)
		}
	}})
	got := daemontest.Run{URL: s.URL}.Do(t, ctx, "vm", "events", daemontest.VMID, "--watch", "--interval", "1ms")
	want := "2026-01-02T03:04:01Z  state      m1\n2026-01-02T03:04:02Z  state      m2\n2026-01-02T03:04:03Z  state      m3\n"
	if got.Code != 0 || got.Out != want {
		t.Errorf("%d %q %s", got.Code, got.Out, got.Err)
	}
}

func TestWatchedMetricsAreRatesBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	looks := 0
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"GetVMMetrics": func(w http.ResponseWriter, r *http.Request) {
		looks++
		if looks == 3 {
			interrupt()
		}
		daemontest.Answer(
			200,
			fmt.Sprintf(
				`{"cpu_seconds":%d,"memory_bytes":1048576,"disk_read_bytes":%d,"disk_written_bytes":0,"net_received_bytes":0,"net_sent_bytes":0,"at":"2026-01-02T03:04:%02dZ"}`,
				looks,
				looks*8192,
				looks*4,
			),
		)(w, r)
	}})
	got := daemontest.Run{URL: s.URL}.Do(t, ctx, "vm", "metrics", daemontest.VMID, "--watch", "--interval", "1ms")
	if want := "2026-01-02T03:04:08Z memory=1.0MiB processors=25.0% disk_read=2.0KiB/s disk_written=0B/s received=0B/s sent=0B/s\n"; got.Code != 0 ||
		got.Out != want {
		t.Errorf("%d %q %s", got.Code, got.Out, got.Err)
	}
}

func TestHostsThatDoNotAnswerMakeTheListAFailure(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"ListFleetVMs": daemontest.Answer(
		200,
		strings.Replace(
			daemontest.Examples()["ListFleetVMs"],
			`"unreachable_nodes":[]`,
			`"unreachable_nodes":[{"node":"host-2","reason":"no answer in 2s"}]`,
			1,
		),
	)})
	got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "fleet", "vms")
	if got.Code != 1 || !strings.Contains(got.Out, "host-1") ||
		!strings.Contains(got.Err, "The host host-2 does not answer: no answer in 2s\n") ||
		!strings.Contains(got.Err, "not complete: 1 of the hosts") {
		t.Errorf("%d\n%s%s", got.Code, got.Out, got.Err)
	}
}
