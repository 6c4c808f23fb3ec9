package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

func TestASettingThatIsWrongStopsTheStartAndIsNamed(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "edge.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	serve := func(args ...string) []string {
		return append(
			[]string{"serve", "edge", "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data")},
			args...)
	}
	for name, c := range map[string]struct {
		env   []string
		args  []string
		names string // what the message must contain
	}{
		"unknown command":         {args: []string{"swerve"}, names: "swerve"},
		"unknown service":         {args: []string{"serve", "egde"}, names: "egde"},
		"unknown flag":            {args: serve("--lisen", "x"), names: "--lisen"},
		"unknown variable":        {env: []string{"EDGE_LISEN=x"}, args: serve(), names: "EDGE_LISEN"},
		"unknown key in the file": {args: serve("--config", file("lisen: x\n")), names: "lisen"},
		"bad YAML":                {args: serve("--config", file("listen: [\n")), names: "edge.yaml"},
		"missing file":            {args: serve("--config", "/does/not/exist.yaml"), names: "/does/not/exist.yaml"},
		"bad duration":            {args: serve("--retention-age", "soon"), names: "retention-age"},
		"too small":               {args: serve("--heartbeat-interval", "1ms"), names: "heartbeat-interval"},
		"too large":               {env: []string{"EDGE_DELIVERY_CONCURRENCY=4096"}, args: serve(), names: "EDGE_DELIVERY_CONCURRENCY"},
		"bad size":                {args: serve("--config", file("retention-size: 10 elephants\n")), names: "retention-size"},
		"bad log level":           {args: serve("--log-level", "loud"), names: "log-level"},
		"bad log format":          {args: serve("--log-format", "xml"), names: "log-format"},
		"bad access log":          {args: serve("--access-log", "some"), names: "access-log"},
		"bad address":             {args: serve("--listen", "127.0.0.1:http-ish"), names: "listen"},
		"password without a name": {env: []string{"EDGE_ADMIN_PASSWORD=" + adminPassword}, args: serve(), names: "admin-username"},
		"one-letter token":        {env: []string{"EDGE_ADMIN_TOKEN=x"}, args: serve(), names: "admin-token"},
		"short password":          {args: serve("--admin-username", "a", "--admin-password", "x"), names: "admin-password"},
		"short secret key":        {args: serve("--secret-key", "0123456789"), names: "secret-key"},
		"half-long secret key":    {args: serve("--secret-key", "0123456789abcdef0123"), names: "secret-key"},
		"secret twice":            {env: []string{"EDGE_ADMIN_TOKEN=a", "EDGE_ADMIN_TOKEN_FILE=/dev/null"}, args: serve(), names: "EDGE_ADMIN_TOKEN_FILE"},
		"missing secret file":     {env: []string{"EDGE_ADMIN_TOKEN_FILE=/does/not/exist"}, args: serve(), names: "EDGE_ADMIN_TOKEN_FILE"},
		"certificate without key": {args: serve("--tls-cert", file("x")), names: "tls-key"},
		"no certificate":          {args: serve("--tls-cert", file("x"), "--tls-key", file("y")), names: "tls-cert"},
		"no PostgreSQL URL":       {args: serve("--database", "mysql://root:"+adminPassword+"@127.0.0.1/x"), names: "database"},
		"PostgreSQL is not there": {args: serve("--database", "postgres://u:"+adminPassword+"@127.0.0.1:1/x"), names: "127.0.0.1:1"},
		"issuer without a client": {args: serve("--oidc-issuer", "http://127.0.0.1:1", "--oidc-redirect-url", "http://127.0.0.1/cb", "--oidc-admin-groups", "a"), names: "oidc-client-id"},
		"data is not a folder":    {args: []string{"serve", "edge", "--listen", "127.0.0.1:0", "--data", file("x")}, names: "edge.yaml"},
		"dev: unknown service":    {args: []string{"dev", "--data", t.TempDir(), "--only", "egde"}, names: "egde"},
		"dev: unknown variable":   {env: []string{"EDGE_LISEN=x"}, args: []string{"dev", "--data", t.TempDir()}, names: "EDGE_LISEN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, output := run(t, c.env, c.args...)
			if code == 0 {
				t.Errorf("exit code 0: %s", output)
			}
			if !strings.Contains(output, c.names) {
				t.Errorf("the message does not name %s: %s", c.names, output)
			}
			if strings.Contains(output, "goroutine ") {
				t.Errorf("it panicked: %s", output)
			}
		})
	}
}

func TestASecondProcessOnTheSameSQLiteDataIsRefused(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	code, output := run(t, e.env, e.args...)
	if code == 0 || !strings.Contains(output, "another process uses") || !strings.Contains(output, e.data) {
		t.Errorf("exit code %d: %s", code, output)
	}
	// The first is none the worse.
	e.enroll("site")
	e.stop()
	e.start()
	if sites := list[edgeapi.Site](e, "/sites"); len(sites) != 1 {
		t.Errorf("%d sites after the restart, want 1", len(sites))
	}
}

func TestSettingsTakenFromAFlagBeatTheEnvironmentAndTheEnvironmentBeatsTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, secret := filepath.Join(dir, "edge.yaml"), filepath.Join(dir, "token")
	for path, text := range map[string]string{config: "heartbeat-interval: 10s\n", secret: adminToken + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	interval := func(env []string, args ...string) int {
		e := newEdge(t, append(args, "--config", config)...)
		e.env = append([]string{"EDGE_ADMIN_TOKEN_FILE=" + secret, "EDGE_ENROLLMENT_TOKEN=" + enrollmentToken}, env...)
		e.start()
		defer e.kill()
		site := got[edgeapi.Enrollment](
			e.api("").Enroll(t.Context(), edgeapi.EnrollRequest{Name: "s", EnrollmentToken: enrollmentToken}),
		).is(t, 200)
		ask(e.api(adminToken).GetMe(t.Context())).is(t, 200) // the token came from a file
		return site.HeartbeatIntervalSeconds
	}
	if s := interval(nil); s != 10 {
		t.Errorf("from the file: %d s", s)
	}
	if s := interval([]string{"EDGE_HEARTBEAT_INTERVAL=20s"}); s != 20 {
		t.Errorf("from the environment: %d s", s)
	}
	if s := interval([]string{"EDGE_HEARTBEAT_INTERVAL=20s"}, "--heartbeat-interval", "40s"); s != 40 {
		t.Errorf("from the flag: %d s", s)
	}
}

func TestSIGTERMLetsRequestsFinishAndEndsWell(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	site, _ := e.enroll("site")
	address := strings.TrimPrefix(e.url(), "http://")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	body, err := json.Marshal(event("in-flight", site, "1"))
	if err != nil {
		t.Fatal(err)
	}
	// The server asks for the body once it works on the request.
	_, err = fmt.Fprintf(
		conn,
		"POST /api/v1/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		address, adminToken, len(body),
	)
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	if line, err := reader.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("the server did not ask for the body: %q %v", line, err)
	}
	if _, err := reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	e.process.terminate()
	eventually(t, "the server takes no more connections", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	if _, err := conn.Write(body); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatalf("the request under way was not answered: %v", err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		t.Errorf("the request under way: %d", res.StatusCode)
	}
	if code := e.process.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	e.start()
	if e.events()["in-flight"] != 1 {
		t.Error("the event is not there after the restart")
	}
}

func TestSIGTERMEndsStreamsAtOnce(t *testing.T) {
	t.Parallel()
	e := startEdge(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url()+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	res, err := browserless.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("stream: %d", res.StatusCode)
	}
	e.process.terminate()
	within(t, patience/6, "the server ends though a stream is open", func() bool {
		select {
		case <-e.process.exited:
			return true
		default:
			return false
		}
	})
	if code := e.process.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

var devAddress = regexp.MustCompile(`(?m)^\s+edge\s+(http://\S+)\s+(\S.*)$`)

func TestDevModeMakesItsCredentialsOnceAndKeepsThem(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "credentials.json")
	read := func() (raw string, keys map[string]map[string]string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &keys); err != nil {
			t.Fatal(err)
		}
		return string(b), keys
	}
	start := func() (p *process, url string) {
		p = launch(t, []string{
			"EDGE_LISTEN=127.0.0.1:0", "VM_LISTEN=127.0.0.1:0", "STORE_LISTEN=127.0.0.1:0", "STORE_GRPC_ADDR=127.0.0.1:0",
		}, "dev", "--data", dir)
		m, ok := p.awaitOutput(devAddress)
		if !ok {
			t.Fatalf("dev mode did not start:\n%s", p.output)
		}
		return p, m[1]
	}
	p, url := start()
	first, keys := read()
	for _, key := range []string{"admin_username", "admin_password", "admin_token", "viewer_token", "enrollment_token"} {
		if keys["edge"][key] == "" {
			t.Errorf("credentials.json has no edge.%s", key)
		}
	}
	if len(keys["edge"]) != 5 {
		t.Errorf("edge has %d credentials, want 5", len(keys["edge"]))
	}
	for name, want := range map[string]fs.FileMode{dir: 0o700, path: 0o600} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %04o, want %04o", filepath.Base(name), info.Mode().Perm(), want)
		}
	}
	eventually(t, "the table is complete", func() bool { return strings.Contains(p.output.String(), path) })
	for _, part := range []string{"SERVICE", "ADDRESS", "STANDS ON", "SIGN IN", "SQLite", "user admin"} {
		if !strings.Contains(p.output.String(), part) {
			t.Errorf("the table lacks %q:\n%s", part, p.output)
		}
	}
	checkSecrets := func(p *process) {
		for key, secret := range keys["edge"] {
			if key != "admin_username" && strings.Contains(p.output.String(), secret) {
				t.Errorf("the program printed edge.%s", key)
			}
		}
	}
	works := func(url string) {
		t.Helper()
		edge := keys["edge"]
		for key, role := range map[string]edgeapi.CallerRole{"admin_token": edgeapi.CallerRoleAdmin, "viewer_token": edgeapi.CallerRoleViewer} {
			if me := got[edgeapi.Caller](apiAt(t, url, edge[key], browserless).GetMe(t.Context())).is(
				t, 200,
			); me.Role != role {
				t.Errorf("%s is the token of a %s", key, me.Role)
			}
		}
		anybody := apiAt(t, url, "", browserless)
		ask(
			anybody.Enroll(t.Context(), edgeapi.EnrollRequest{Name: "s", EnrollmentToken: edge["enrollment_token"]}),
		).is(t, 200)
		ask(
			anybody.Login(
				t.Context(), edgeapi.LoginRequest{Username: edge["admin_username"], Password: edge["admin_password"]},
			),
		).is(t, 200)
		ask(anybody.Login(t.Context(), edgeapi.LoginRequest{Username: edge["admin_username"], Password: "wrong"})).is(
			t, 401,
		)
	}
	works(url)
	p.stop()
	checkSecrets(p)

	p, url = start()
	if again, _ := read(); again != first {
		t.Error("the restart changed the credentials")
	}
	works(url)
	if sites := got[[]edgeapi.Site](
		apiAt(t, url, keys["edge"]["admin_token"], browserless).ListSites(t.Context(), &edgeapi.ListSitesParams{}),
	).is(t, 200); len(*sites) != 2 {
		t.Errorf("%d sites after the restart, want 2", len(*sites))
	}
	p.stop()
	checkSecrets(p)
}

// What every run prints is searched by the harness; here everything that could be
// printed is, at the most talkative level, and requests carry secrets in all places.
func TestSecretsStayOutOfTheMostTalkativeLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			e := newEdge(
				t, "--log-level", "debug", "--log-format", format, "--access-log", "all", "--secret-key", secretKey,
			)
			e.launch()
			m, ok := e.process.awaitOutput(regexp.MustCompile(`"?url"?[=:]"?(http://[0-9.:]+)`))
			if !ok {
				t.Fatal("the control plane did not start")
			}
			e.at.Store(&m[1])
			site, agent := e.enroll("site")
			org := got[edgeapi.NewOrg](e.api(adminToken).CreateOrg(t.Context(), edgeapi.OrgInput{Name: "acme"})).is(
				t, 201,
			)
			ask(e.api(org.AdminToken).GetMe(t.Context())).is(t, 200)
			e.route("r", "https://hooks.example.com/")
			session := got[edgeapi.Session](
				e.api("").Login(t.Context(), edgeapi.LoginRequest{Username: adminName, Password: adminPassword}),
			).is(t, 200).Token
			ask(
				e.api("").Login(
					t.Context(), edgeapi.LoginRequest{Username: adminPassword, Password: adminPassword + "x"},
				),
			).is(t, 401)
			ask(
				e.api("").Enroll(t.Context(), edgeapi.EnrollRequest{Name: "s", EnrollmentToken: enrollmentToken + "x"}),
			).is(t, 401)
			res, err := browserless.Get(e.url() + "/api/v1/sites?access_token=" + adminToken + "&token=" + session)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			ask(e.api(adminToken).RevokeSite(t.Context(), site)).is(t, 200)
			ask(e.api(agent).Heartbeat(t.Context(), edgeapi.HeartbeatInput{})).is(t, 401)
			e.stop()
		})
	}
}
