package vm_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/cli/vm/daemon/daemontest"
)

func TestAnErrorTellsWhatTheDaemonSaidAndWhatToDo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, operation, args string
		status                int
		body                  string
		code                  int
		want                  string
	}{
		{"not found", "GetImage", "image show x", 404, `{"error":"no such image","code":"not_found","request_id":"q"}`, 3,
			"mainstay: no such image (code not_found, request id q)\nhint: 'mainstay image list' shows what there is\n"},
		{"a limit", "CreateVM", "vm create x", 400, `{"error":"too large","code":"limit","field":"vcpus","limit":"max_vcpus","request_id":"q"}`, 1,
			"too large (code limit, field vcpus, limit max_vcpus, request id q)"},
		{"no credentials", "GetMe", "vm whoami", 401, `{"error":"who?","code":"unauthenticated","request_id":"q"}`, 4, "hint: give a token with --token or HYPERVISOR_TOKEN; or log in with 'mainstay login hypervisor'"},
		{"not permitted", "ListNodes", "fleet nodes", 403, `{"error":"no","code":"denied","request_id":"q"}`, 4, "hint: 'mainstay vm whoami'"},
		{"controls", "GetHost", "vm host", 401, `{"error":"\u001b[2J","code":"x","request_id":""}`, 4, `\x1b[2J (code x)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := daemontest.Serve(t, map[string]http.HandlerFunc{tt.operation: daemontest.Answer(tt.status, tt.body)})
			got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), strings.Fields(tt.args)...)
			if got.Code != tt.code || got.Out != "" || !strings.Contains(got.Err, tt.want) {
				t.Errorf("exit code %d, printed %q and %q", got.Code, got.Out, got.Err)
			}
		})
	}
}

func TestNoDaemonASlowOneAndAnotherServerAreToldApart(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	got := daemontest.Run{URL: gone.URL}.Do(t, t.Context(), "vm", "list")
	if got.Code != 5 ||
		!strings.Contains(
			got.Err,
			"connection refused\nhint: is the server running? start it with 'mainstay dev' or 'mainstay serve hypervisor', or name another with --server",
		) {
		t.Errorf("%d %s", got.Code, got.Err)
	}
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	defer close(release)
	got = daemontest.Run{
		URL: slow.URL,
	}.Do(t, t.Context(), "vm", "whoami", "--timeout", (20 * time.Millisecond).String())
	if got.Code != 5 || !strings.Contains(got.Err, "--timeout allows for more") {
		t.Errorf("%d %s", got.Code, got.Err)
	}
	page := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<h1>hi</h1>")) }),
	)
	defer page.Close()
	got = daemontest.Run{URL: page.URL}.Do(t, t.Context(), "image", "list")
	if got.Code != 1 || !strings.Contains(got.Err, "answers, but is not a hypervisor daemon") {
		t.Errorf("%d %s", got.Code, got.Err)
	}
}

func TestAWrongCommandLineExitsWith2AndAsksNobody(t *testing.T) {
	t.Parallel()
	big := writeFile(t, "big", strings.Repeat("x", 1<<20+1))
	typo := writeFile(t, "typo.yaml", "name: x\nvcpu: 3\n")
	folder := t.TempDir()
	for line, want := range map[string]string{
		"vm show":                        "VM is missing",
		"vm show a b":                    `unexpected argument "b"`,
		"vm stars x":                     "did you mean start",
		"vm list --limit 0":              "--limit must be at least 1",
		"vm list --url nonsense":         "--url must be a URL",
		"vm list --server nonsense":      "--server must be a URL",
		"vm create":                      "NAME is missing",
		"vm create x --memory 2X":        "must be a size",
		"vm create x --memory 1K":        "must be a whole number of MiB",
		"vm create x --ttl 1ms":          "--ttl must be at least 1s",
		"vm create --file " + typo:       `unknown field "vcpu"`,
		"vm create x --user-data " + big: "is larger than 65536 bytes",
		"vm delete web":                  "confirm with --yes",
		"vm wait web":                    "--for is missing",
		"vm wait web --for up":           "--for must be agent, or creating",
		"vm start web --wait stopped":    "--wait must be running or agent",
		"vm create x --wait agent":       "--wait needs --start",
		"vm run x --wait agent":          "--wait needs --detach",
		"vm stop web --grace 2h":         "--grace must be between 0 and 1h",
		"vm cp a b":                      "one of FROM and TO must be in a guest",
		"vm cp a:/b c:/d":                "must be a local file",
		"vm cp " + folder + " web:/x":    "is not a file",
		"vm backup restore b1":           "give either --name",
		"vm resize web much":             "SIZE must be a size",
		"vm set web":                     "nothing to change",
		"vm start web --share /srv":      "--share must have the form",
		"vm metrics web --interval 0s":   "--interval must be more than 0",
		"image add x":                    "give either PATH or --kernel",
		"image add x rel.qcow2":          "'mainstay image import' sends a file from here",
		"image read-only x maybe":        "must be on or off",
		"image remove x":                 "confirm with --yes",
		"image update x":                 "give --name or --read-only",
		"fleet node lst":                 "did you mean list?",
		"fleet create x --selector y":    "must be KEY=VALUE",
		"fleet delete h":                 "VM is missing",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			s := daemontest.Serve(t, nil)
			got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), strings.Fields(line)...)
			if got.Code != 2 || !strings.Contains(got.Err, want) {
				t.Errorf("exit code %d, want 2 and %q:\n%s", got.Code, want, got.Err)
			}
			if called := s.Called(); called != "" && called != "ListVMs" {
				t.Errorf("called %s", called)
			}
		})
	}
}

func TestTheTokenIsTheFlagsElseTheEnvironmentsElseThatOfDevMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".mainstay"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(
		filepath.Join(dir, ".mainstay", "credentials.json"),
		[]byte(`{"hypervisor":{"token":"dev"}}`),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	s := daemontest.Serve(t, nil)
	env := map[string]string{"HYPERVISOR_TOKEN": "env", "HYPERVISOR_URL": s.URL}
	for _, tt := range []struct {
		run  daemontest.Run
		args string
		want string
	}{
		{daemontest.Run{Dir: dir, Env: env}, "vm whoami --token flag", "Bearer flag"},
		{daemontest.Run{Dir: dir, Env: env}, "image list", "Bearer env"},
		{daemontest.Run{Dir: dir, URL: s.URL}, "fleet nodes", "Bearer dev"},
		{daemontest.Run{URL: s.URL}, "vm host", ""},
	} {
		tt.run.OK(t, strings.Fields(tt.args)...)
		if got := s.Last().Authorization; got != tt.want {
			t.Errorf("%s: sent %q, want %q", tt.args, got, tt.want)
		}
	}
}

func TestAFailedVMOfARunIsRemovedUnlessItIsKept(t *testing.T) {
	t.Parallel()
	s := daemontest.Serve(
		t,
		map[string]http.HandlerFunc{
			"StartVM": daemontest.Answer(503, `{"error":"no QEMU","code":"missing","request_id":"q"}`),
		},
	)
	got := daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "run", "demo")
	if got.Code != 5 || !strings.Contains(got.Err, "no QEMU") || s.Called() != "CreateVM StartVM DeleteVM" {
		t.Errorf("%d %s; called %s", got.Code, got.Err, s.Called())
	}
	if body := s.Requests()[0].Body; !strings.Contains(body, `"name":"demo-`) {
		t.Errorf("no name was made: %s", body)
	}
	got = daemontest.Run{URL: s.URL}.Do(t, t.Context(), "vm", "run", "demo", "--keep")
	if s.Called() != "CreateVM StartVM DeleteVM CreateVM StartVM" || !strings.Contains(got.Err, "the VM is kept") {
		t.Errorf("%s; called %s", got.Err, s.Called())
	}
}
