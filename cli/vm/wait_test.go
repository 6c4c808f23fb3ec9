package vm_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

// vmIn returns the example VM, called web, in another state.
func vmIn(state, lastError string, enabled, connected bool) string {
	text := strings.Replace(daemontest.Examples()["GetVM"], `"state":"running"`, `"state":"`+state+`"`, 1)
	text = strings.Replace(text, `"last_error":""`, `"last_error":"`+lastError+`"`, 1)
	return strings.Replace(
		text,
		`"agent":{"enabled":true,"connected":true`,
		fmt.Sprintf(`"agent":{"enabled":%t,"connected":%t`, enabled, connected),
		1,
	)
}

// looks responds to each poll of the VM with the next of these, and then repeats the last.
func looks(count *atomic.Int64, vms ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		n := count.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, vms[min(int(n), len(vms))-1]) // a client that left
	}
}

func TestAWaitEndsWhenTheVMIsAsItShouldBeOrCannotBecomeSo(t *testing.T) {
	t.Parallel()
	starting, booting := vmIn("starting", "", true, false), vmIn("running", "", true, false)
	ready, stopped := vmIn("running", "", true, true), vmIn("stopped", "", true, false)
	failed := vmIn("failed", "no space for the disk", true, false)
	for _, tt := range []struct {
		name, args string
		vms        []string
		code       int
		want       string // of what is printed
	}{
		{"running", "vm wait web --for running", []string{stopped, starting, booting}, 0, "web is running.\n"},
		{"the agent", "vm wait web --for agent", []string{stopped, starting, booting, ready}, 0, "web is running, and its agent is connected.\n"},
		{"stopped", "vm wait web --for stopped", []string{ready, stopped}, 0, "web is stopped.\n"},
		{"after a start", "vm start web --wait agent", []string{booting, ready}, 0, "web is running, and its agent is connected.\n"},
		{"after it was made", "vm create web --start --wait agent", []string{starting, booting, ready}, 0, "web is running, and its agent is connected.\n"},
		{"it fails", "vm wait web --for agent", []string{starting, failed}, 1,
			"mainstay: the VM web failed: no space for the disk\nhint: 'mainstay vm events web' tells more\n"},
		{"it fails after it was made", "vm create web --start --wait running", []string{starting, failed}, 1, "mainstay: the VM was made, but: the VM web failed: no space for the disk\nhint: 'mainstay vm events web'"},
		{"it stops", "vm wait web --for agent", []string{booting, stopped}, 1, "the VM web stopped while it was waited for\nhint: 'mainstay vm events web' tells why"},
		{"it stops at once", "vm start web --wait running", []string{stopped}, 1, "the VM web stopped while it was waited for"},
		{"it has no agent", "vm wait web --for agent", []string{vmIn("running", "", false, false)}, 1, "the VM web was made without an agent"},
		{"the time is over", "vm wait web --for agent --timeout 1ms", []string{booting}, 1,
			"the VM web is running, and its agent was not connected within 1ms\nhint: 'mainstay vm console web' shows what the guest does"},
		{"nobody starts it", "vm wait web --for agent --timeout 1ms", []string{stopped}, 1, "the VM web is stopped, and its agent was not connected within 1ms\nhint: 'mainstay vm start web' starts it"},
		{"another state", "vm wait web --for paused --timeout 1ms", []string{booting}, 1, "the VM web is running, and was not paused within 1ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var count atomic.Int64
			s := daemontest.Serve(t, map[string]http.HandlerFunc{
				"GetVM":    looks(&count, tt.vms...),
				"CreateVM": daemontest.Answer(201, starting),
				"StartVM":  daemontest.Answer(200, booting),
			})
			got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), strings.Fields(tt.args)...)
			if got.Code != tt.code || !strings.Contains(got.Out+got.Err, tt.want) {
				t.Errorf("exit code %d, printed %q and %q; want %q", got.Code, got.Out, got.Err, tt.want)
			}
			if int(count.Load()) < len(tt.vms) {
				t.Errorf("it looked %d times, and the VM was as it should be at the %dth", count.Load(), len(tt.vms))
			}
		})
	}
}

func TestAWaitEndsWithCtrlC(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := daemontest.Serve(t, map[string]http.HandlerFunc{"GetVM": func(w http.ResponseWriter, r *http.Request) {
		daemontest.Answer(200, vmIn("running", "", true, false))(w, r)
		cancel()
	}})
	got := daemontest.Run{URL: s.URL}.Do(t, ctx, "vm", "wait", "web", "--for", "agent")
	if got.Code != 1 || !strings.Contains(got.Err, "interrupted") {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
}

func TestWithoutAnAgentTheCommandThatWaitsForItIsNamed(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(
		t,
		map[string]http.HandlerFunc{
			"Exec": daemontest.Answer(
				409,
				`{"error":"the guest's agent is not connected","code":"agent_not_connected","request_id":"q"}`,
			),
		},
	)
	got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "exec", "web", "--", "x")
	if got.Code != 125 ||
		!strings.Contains(got.Err, "hint: 'mainstay vm wait VM --for agent' waits until it is connected") {
		t.Errorf("exit code %d: %s", got.Code, got.Err)
	}
}
