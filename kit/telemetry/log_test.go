package telemetry_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

const leak = "hunter2"

func newLogger(t *testing.T, format, level string) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	var buf bytes.Buffer
	l, err := telemetry.NewLogger(&buf, format, level)
	if err != nil {
		t.Fatal(err)
	}
	return l, &buf
}

type hidden struct{}

func (hidden) LogValue() slog.Value { return slog.GroupValue(slog.String("password", leak)) }

func TestSecretAttributesAreRedactedWhereverTheyAre(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		l, buf := newLogger(t, format, "info")
		for _, key := range []string{
			"token", "access_token", "AccessToken", "password", "db-password", "client.secret", "Authorization",
			"Set-Cookie", "api_key", "apiKey", "X-API-Key", "private_key", "credentials", "database_dsn",
		} {
			l.Info("m", key, leak)
		}
		l.With("token", leak).Info("with")
		l.WithGroup("a").WithGroup("b").Info("groups", "secret", leak)
		l.Info("group value", slog.Group("a", slog.Group("b", slog.String("password", leak))))
		l.Info("secret group", slog.Group("credentials", slog.String("user", leak), slog.Group("x", slog.Int("y", 1))))
		l.WithGroup("authorization").With("scheme", leak).Info("secret outer group", "value", leak)
		l.Info("valuer", "who", hidden{})
		l.Info("maps", "h", http.Header{"Authorization": {leak}, "X-Auth-Token": {leak}},
			"m", map[string]string{"password": leak}, "n", map[string]any{"in": map[string]any{"secret": leak}})
		l.Info("bytes", "token", []byte(leak))
		if out := buf.String(); strings.Contains(out, leak) || !strings.Contains(out, "[redacted]") {
			t.Errorf("%s: %s", format, out)
		}
	}
}

func TestOtherAttributesAreWrittenAsTheyAre(t *testing.T) {
	t.Parallel()
	l, buf := newLogger(t, "json", "info")
	header := http.Header{"Accept": {"*/*"}, "Cookie": {leak}}
	l.Info("hello", "site", "site_1", slog.Group("g", slog.Int("n", 3)), "csr_pem", "x", "h", header)
	var got struct {
		Msg    string      `json:"msg"`
		Level  string      `json:"level"`
		Site   string      `json:"site"`
		CSR    string      `json:"csr_pem"`
		Header http.Header `json:"h"`
		G      struct{ N int }
	}
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Msg != "hello" || got.Level != "INFO" || got.Site != "site_1" || got.CSR != "x" || got.G.N != 3 ||
		got.Header.Get("Accept") != "*/*" {
		t.Errorf("%s", buf)
	}
	if header.Get("Cookie") != leak {
		t.Error("the caller's map was changed")
	}
}

func TestEachLevelHidesTheLowerOnes(t *testing.T) {
	t.Parallel()
	for i, level := range []string{"debug", "info", "warn", "error"} {
		l, buf := newLogger(t, "text", level)
		l.Debug("m")
		l.Info("m")
		l.Warn("m")
		l.Error("m")
		if n := strings.Count(buf.String(), "msg=m"); n != 4-i {
			t.Errorf("%s: %d lines", level, n)
		}
	}
}

func TestBadLogSettingsAreFaultsThatNameTheSetting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ format, level, field string }{
		{"xml", "info", "log-format"}, {"", "info", "log-format"}, {"json", "loud", "log-level"}, {"json", "", "log-level"},
	} {
		_, err := telemetry.NewLogger(&bytes.Buffer{}, c.format, c.level)
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != c.field ||
			!strings.Contains(err.Error(), c.field) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func ExampleNewLogger() {
	log, err := telemetry.NewLogger(os.Stdout, "text", "info")
	if err != nil {
		panic(err)
	}
	log = slog.New(withoutTime{log.Handler()})
	log.Info("site enrolled", "site", "site_1", "join_token", "t0ps3cret")
	// Output: level=INFO msg="site enrolled" site=site_1 join_token=[redacted]
}
