package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/rest"
)

// The credentials of the servers under test. None of them may appear in what a
// server prints.
const (
	adminToken      = "e2e-admin-token-5f1c9be2"
	viewerToken     = "e2e-viewer-token-83ad0c17"
	enrollmentToken = "e2e-enrollment-token-d9427f60"
	adminName       = "operator"
	adminPassword   = "e2e-password-correct-horse"
	secretKey       = "e2e-secret-key-0c4b7a9e6d21f358ab"
	clientSecret    = "e2e-client-secret-71e3f8aa"
	lbAdminKey      = "e2e-lb-admin-key-2d7f60c4b1"
	lbOtherKey      = "e2e-lb-other-key-90ac35e7f2"
	lbReadonlyKey   = "e2e-lb-readonly-key-6b18d40e"
	bgpPassword     = "e2e-bgp-password-47ce19ab"
)

// issued are the forms of the secrets that servers make themselves.
var issued = regexp.MustCompile(
	`\b(?:mse|mag|moa|mov|men|madm|mvwr|menr)_[A-Za-z0-9_-]{16,}|whsec_[A-Za-z0-9+/=]{16,}|BEGIN [A-Z ]*PRIVATE KEY`,
)

// patience is how long a test waits for what another process does. It is long,
// because it is spent only when a test fails.
const patience = 60 * time.Second

var scratch string // removed when the tests are over

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "mainstay-e2e-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(scratch) }()
		return m.Run()
	}())
}

// binary builds the program once. It is built in its own module, with the
// dependencies that the product has, not those of the tests.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("MAINSTAY_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(scratch, "mainstay")
	build := exec.Command("go", "build", "-o", path, "github.com/mainstay-infra/mainstay/cmd/mainstay")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build mainstay: %w\n%s", err, out)
	}
	return path, nil
})

// process is a run of the program.
type process struct {
	testing.TB
	cmd    *exec.Cmd
	output *transcript
	exited chan struct{} // closed when it is over
}

// launch starts the program. It is killed when the test ends, if it still runs;
// what it printed is shown if the test failed, and searched for secrets.
func launch(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return launchProgram(t, env, path, args...)
}

// launchProgram is launch for a program that in the end becomes ours.
func launchProgram(t testing.TB, env []string, name string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = dieWithParent()
	return launchCommand(t, env, cmd, (*exec.Cmd).Start)
}

// launchCommand is launch for a command that is started somewhere else, or as
// somebody else.
func launchCommand(t testing.TB, env []string, cmd *exec.Cmd, start func(*exec.Cmd) error) *process {
	t.Helper()
	p := &process{TB: t, cmd: cmd, output: newTranscript(), exited: make(chan struct{})}
	args := cmd.Args[1:]
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the exit code is read from ProcessState
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		p.checkNoSecrets()
		if t.Failed() {
			t.Logf("%s printed:\n%s", strings.Join(args[:min(2, len(args))], " "), tail(p.output.String(), 60))
		}
	})
	return p
}

// run runs the program to its end and returns its exit code and what it printed.
func run(t testing.TB, env []string, args ...string) (code int, output string) {
	t.Helper()
	p := launch(t, env, args...)
	return p.wait(), p.output.String()
}

func (p *process) wait() (code int) {
	p.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.Fatalf("the program did not end within %s", patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process the way a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be over already
	<-p.exited
}

// terminate asks the process to end.
func (p *process) terminate() {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Errorf("SIGTERM: %v", err)
	}
}

// stop ends the process as an operator would, and checks that it ended well.
func (p *process) stop() {
	p.Helper()
	p.terminate()
	if code := p.wait(); code != 0 {
		p.Errorf("exit code %d after SIGTERM", code)
	}
}

func (p *process) checkNoSecrets() {
	p.Helper()
	printed := p.output.String()
	for _, secret := range []string{adminToken, viewerToken, enrollmentToken, adminPassword, secretKey, clientSecret, lbAdminKey, lbOtherKey, lbReadonlyKey, bgpPassword} {
		if strings.Contains(printed, secret) {
			p.Errorf("the program printed the secret %q", secret)
		}
	}
	if found := issued.FindString(printed); found != "" {
		p.Errorf("the program printed a secret that it made: %s...", found[:8])
	}
}

// awaitOutput waits until what the process printed matches, and returns the
// submatches. It reports false if the process ended without.
func (p *process) awaitOutput(pattern *regexp.Regexp) ([]string, bool) {
	p.Helper()
	deadline := time.After(patience)
	for {
		text, changed := p.output.read()
		if m := pattern.FindStringSubmatch(text); m != nil {
			return m, true
		}
		select {
		case <-changed:
		case <-p.exited:
			m := pattern.FindStringSubmatch(p.output.String())
			return m, m != nil
		case <-deadline:
			p.Fatalf("the program did not print %s within %s", pattern, patience)
		}
	}
}

// transcript keeps what a process prints.
type transcript struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed and replaced at every write
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (o *transcript) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(b)
}

func (o *transcript) read() (text string, changed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.changed
}

func (o *transcript) String() string { text, _ := o.read(); return text }

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// edge is an edge control plane that can be stopped, killed and started again
// on the same data.
type edge struct {
	testing.TB
	env  []string
	args []string
	data string

	process *process
	at      atomic.Pointer[string] // its URL, which changes with every start
}

var listening = regexp.MustCompile(`msg=listening service=edge url=(\S+)`)

// newEdge prepares a control plane with a data folder of its own. Later args
// win over earlier ones.
func newEdge(t testing.TB, args ...string) *edge {
	t.Helper()
	e := &edge{TB: t, data: filepath.Join(t.TempDir(), "data")}
	e.env = []string{
		"EDGE_ADMIN_TOKEN=" + adminToken, "EDGE_VIEWER_TOKEN=" + viewerToken,
		"EDGE_ENROLLMENT_TOKEN=" + enrollmentToken, "EDGE_ADMIN_USERNAME=" + adminName,
		"EDGE_ADMIN_PASSWORD=" + adminPassword,
	}
	e.args = append([]string{"serve", "edge", "--listen", "127.0.0.1:0", "--data", e.data}, args...)
	return e
}

// startEdge starts a control plane and waits until it can be reached.
func startEdge(t testing.TB, args ...string) *edge {
	t.Helper()
	e := newEdge(t, args...)
	e.start()
	return e
}

// start launches the control plane and waits until it can be reached.
func (e *edge) start() {
	e.Helper()
	e.launch()
	e.ready()
}

func (e *edge) launch() { e.Helper(); e.process = launch(e.TB, e.env, e.args...) }

func (e *edge) ready() {
	e.Helper()
	m, ok := e.process.awaitOutput(listening)
	if !ok {
		e.Fatalf("the control plane did not start:\n%s", tail(e.process.output.String(), 20))
	}
	e.at.Store(&m[1])
}

func (e *edge) kill() { e.process.kill() }
func (e *edge) stop() { e.Helper(); e.process.stop() }

// url is where the control plane is reached now.
func (e *edge) url() string { return *e.at.Load() }

// browserless is the HTTP client of all tests.
var browserless = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// api is a client of the control plane as it is reached now.
func (e *edge) api(token string) *edgeapi.Client {
	e.Helper()
	return apiAt(e.TB, e.url(), token, browserless)
}

func apiAt(t testing.TB, url, token string, client *http.Client) *edgeapi.Client {
	t.Helper()
	c, err := edgeapi.NewClient(url+edgeapi.BasePath, rest.WithHTTPClient(client),
		rest.WithEditor(func(_ context.Context, r *http.Request) error {
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answer is an answer that was read whole.
type answer struct {
	*http.Response
	body []byte
	err  error
}

// ask reads an answer; it takes what a method of a generated client returns.
func ask(r *http.Response, err error) answer {
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	return answer{r, body, err}
}

// is returns the answer if it has the status, and fails the test otherwise.
func (a answer) is(t testing.TB, status int) answer {
	t.Helper()
	if a.err != nil {
		t.Fatal(a.err)
	}
	if a.StatusCode != status {
		t.Fatalf("status %d, want %d: %s", a.StatusCode, status, a.body)
	}
	return a
}

// got is ask for an answer that is a T.
func got[T any](r *http.Response, err error) typed[T] { return typed[T]{ask(r, err)} }

type typed[T any] struct{ answer }

// is returns what was answered if the answer has the status, and fails the test otherwise.
func (a typed[T]) is(t testing.TB, status int) *T {
	t.Helper()
	v := new(T)
	if err := json.Unmarshal(a.answer.is(t, status).body, v); err != nil {
		t.Fatalf("not as the contract says: %v: %s", err, a.body)
	}
	return v
}

// refusal reads the body of an error.
func refusal(t testing.TB, body []byte) (code, field, message string) {
	t.Helper()
	var e edgeapi.Error
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("not an error of the contract: %v: %s", err, body)
	}
	if e.Error.Field != nil {
		field = *e.Error.Field
	}
	return e.Error.Code, field, e.Error.Message
}

// enroll makes a site and returns its id and its agent's token.
func (e *edge) enroll(name string) (id, token string) {
	e.Helper()
	in := edgeapi.EnrollRequest{Name: name, EnrollmentToken: enrollmentToken}
	site := got[edgeapi.Enrollment](e.api("").Enroll(e.Context(), in)).is(e, 200)
	return site.SiteId, site.AgentToken
}

// route makes a route for all topics and returns its id.
func (e *edge) route(name, targetURL string, change ...func(*edgeapi.RouteInput)) string {
	e.Helper()
	in := edgeapi.RouteInput{Name: name, Topic: "*", TargetUrl: targetURL}
	for _, f := range change {
		f(&in)
	}
	return got[edgeapi.Route](e.api(adminToken).CreateRoute(e.Context(), in)).is(e, 201).Id
}

func event(id, site string, payload string) edgeapi.EventInput {
	return edgeapi.EventInput{EventId: &id, SiteId: site, Topic: "e2e/test", Payload: json.RawMessage(payload)}
}

// ingest hands over an event and reports whether it was acknowledged.
func (e *edge) ingest(ev edgeapi.EventInput) bool {
	e.Helper()
	_, err := rest.Read(e.api(adminToken).IngestEvent(e.Context(), ev))
	return err == nil
}

// list reads all pages of a list.
func list[T any](e *edge, path string) []T {
	e.Helper()
	var all []T
	for next := e.url() + edgeapi.BasePath + path; next != ""; {
		req, err := http.NewRequestWithContext(e.Context(), http.MethodGet, next, nil)
		if err != nil {
			e.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		res, err := browserless.Do(req)
		if err != nil {
			e.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			e.Fatalf("GET %s: %d: %v %s", next, res.StatusCode, err, body)
		}
		var page []T
		if err := json.Unmarshal(body, &page); err != nil {
			e.Fatal(err)
		}
		all = append(all, page...)
		next = ""
		if m := regexp.MustCompile(`<([^>]+)>;\s*rel="next"`).FindStringSubmatch(res.Header.Get("Link")); m != nil {
			link, err := req.URL.Parse(m[1])
			if err != nil {
				e.Fatal(err)
			}
			next = link.String()
		}
	}
	return all
}

// events are the ids of all stored events with how often each occurs.
func (e *edge) events() map[string]int {
	e.Helper()
	ids := map[string]int{}
	for _, ev := range list[edgeapi.Event](e, "/events?limit=1000") {
		ids[ev.EventId]++
	}
	return ids
}

// buried are the event ids of a route's dead letters with how often each occurs.
func (e *edge) buried(routeID string) map[string]int {
	e.Helper()
	ids := map[string]int{}
	for _, l := range list[edgeapi.DeadLetter](e, "/deadletters?limit=1000&route_id="+routeID) {
		ids[l.Event.EventId]++
	}
	return ids
}

// drained waits until no delivery is pending.
func (e *edge) drained() {
	e.Helper()
	eventually(e, "no delivery is pending", func() bool {
		return got[edgeapi.Overview](e.api(adminToken).GetOverview(e.Context())).is(e, 200).DeliveriesPending == 0
	})
}

// checkAudit fails the test unless the audit log is whole.
func (e *edge) checkAudit() {
	e.Helper()
	v := got[edgeapi.AuditVerification](e.api(adminToken).VerifyAudit(e.Context())).is(e, 200)
	if !v.Ok || v.Verified != v.Entries || v.Entries == 0 {
		e.Errorf("the audit log is not whole: %+v", *v)
	}
}

// metric reads the sum of a metric's series from /metrics.
func (e *edge) metric(name string) float64 {
	e.Helper()
	return metricAt(e.TB, browserless, e.url(), name)
}

// metricAt is metric for any server; name may be that of one series, with its labels.
func metricAt(t testing.TB, client *http.Client, url, name string) float64 {
	t.Helper()
	res, err := client.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(name)+`(?:\{[^}]*\})? (\S+)$`).FindAllSubmatch(body, -1) {
		var v float64
		if _, err := fmt.Sscan(string(m[1]), &v); err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// eventually waits for what other processes bring about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, patience, what, ok)
}

func within(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %s: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond) // another process's doing; there is no signal to wait for
	}
}

// target is an HTTP target of routes.
type target struct {
	url        string
	answer     func(r received) int // nil: 200
	retryAfter string               // the header of answers other than 2xx

	mu  sync.Mutex
	got []received
}

// received is a request that a target got, in the order in which they came.
type received struct {
	EventID string `json:"event_id"`
	SiteID  string `json:"site_id"`
	path    string
	again   int // how often the path got the event before
}

func newTarget(t testing.TB, answer func(received) int) *target {
	t.Helper()
	tg := &target{answer: answer}
	seen := map[[2]string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := received{path: r.URL.Path}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			w.WriteHeader(http.StatusInternalServerError) // a server that was killed in the middle of it
			return
		}
		tg.mu.Lock()
		key := [2]string{got.path, got.EventID}
		got.again = seen[key]
		seen[key]++
		tg.got = append(tg.got, got)
		tg.mu.Unlock()
		status := http.StatusOK
		if tg.answer != nil {
			status = tg.answer(got)
		}
		if status > 299 && tg.retryAfter != "" {
			w.Header().Set("Retry-After", tg.retryAfter)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	tg.url = server.URL
	return tg
}

// requests are all requests to a path so far.
func (tg *target) requests(path string) []received {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(tg.got), func(r received) bool { return r.path != path })
}

// deliveries are the event ids that a path got with how often each did.
func (tg *target) deliveries(path string) map[string]int {
	ids := map[string]int{}
	for _, r := range tg.requests(path) {
		ids[r.EventID]++
	}
	return ids
}

// missing are the keys of want that got lacks, sorted.
func missing[V any](want map[string]V, got map[string]int) []string {
	var lacking []string
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if got[id] == 0 {
			lacking = append(lacking, id)
		}
	}
	return lacking
}

// repeated are the keys that occur more than once, sorted.
func repeated(got map[string]int) []string {
	var more []string
	for _, id := range slices.Sorted(maps.Keys(got)) {
		if got[id] > 1 {
			more = append(more, id)
		}
	}
	return more
}

// sample shortens a list for a message.
func sample(ids []string) string {
	if len(ids) > 5 {
		return fmt.Sprintf("%d, for example %s", len(ids), strings.Join(ids[:5], ", "))
	}
	return fmt.Sprintf("%d: %s", len(ids), strings.Join(ids, ", "))
}
