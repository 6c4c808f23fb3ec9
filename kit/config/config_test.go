package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/mainstay-infra/mainstay/kit/config"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

type tlsConfig struct {
	Cert string `key:"cert" help:"Certificate, PEM."`
}

type shared struct {
	Level string `key:"log-level" default:"info" help:"How much is logged."`
}

type testConfig struct {
	Listen  string        `key:"listen" env:"EDGE_LISTEN" default:"127.0.0.1:8080" help:"Address to serve on."`
	Beat    time.Duration `key:"heartbeat-interval" default:"30s" min:"1s" max:"1h" help:"How often agents call."`
	Token   string        `key:"admin-token" secret:"true" help:"Token | of the administrator."`
	Pin     int           `key:"pin" secret:"true" min:"1000" help:"A secret number."`
	Groups  []string      `key:"groups" default:"a,b" help:"Groups."`
	Debug   bool          `key:"debug" help:"Says more."`
	Workers int           `key:"workers" default:"4" min:"1" help:"Workers."`
	Serial  int64         `key:"serial" help:"Serial."`
	Rate    float64       `key:"rate" default:"0.5" max:"1" help:"Rate."`
	Cache   config.Bytes  `key:"cache" default:"512MiB" min:"1MiB" help:"Cache."`
	TLS     tlsConfig     `prefix:"tls"`
	shared
	Log any // no key: not a setting
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edge.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func flags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("edge", pflag.ContinueOnError)
	config.BindFlags(fs, testConfig{}, "EDGE")
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fs
}

// problem loads an invalid configuration and returns the message.
func problem(t *testing.T, src config.Sources) string {
	t.Helper()
	cfg := testConfig{Listen: "untouched"}
	err := config.Load(&cfg, "EDGE", src)
	if !fault.Is(err, fault.Invalid) {
		t.Fatalf("%+v: %v", src, err)
	}
	if !reflect.DeepEqual(cfg, testConfig{Listen: "untouched"}) {
		t.Errorf("the refused settings changed something: %+v", cfg)
	}
	return err.Error()
}

func contains(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func TestAFlagBeatsTheEnvironmentWhichBeatsTheFileWhichBeatsTheDefault(t *testing.T) {
	t.Parallel()
	src := config.Sources{}
	for _, tt := range []struct {
		add  func()
		want string
	}{
		{func() {}, "127.0.0.1:8080"},
		{func() { src.File = file(t, "listen: from-file") }, "from-file"},
		{func() { src.Environ = []string{"EDGE_LISTEN="} }, "from-file"},
		{func() { src.Environ = []string{"EDGE_LISTEN=from-env"} }, "from-env"},
		{func() { src.Flags = flags(t) }, "from-env"},
		{func() { src.Flags = flags(t, "--listen", "from-flag") }, "from-flag"},
		{func() { src.Flags = flags(t, "--listen=") }, ""},
	} {
		tt.add()
		cfg := testConfig{Listen: "before"}
		if err := config.Load(&cfg, "EDGE", src); err != nil || cfg.Listen != tt.want {
			t.Errorf("%q, %v; want %q", cfg.Listen, err, tt.want)
		}
	}
}

func TestEveryTypeIsReadFromEverySource(t *testing.T) {
	t.Parallel()
	want := testConfig{
		Listen: "x", Beat: time.Minute, Token: "t", Pin: 1234, Groups: []string{"c", "d"}, Debug: true,
		Workers: 9, Serial: -1 << 40, Rate: 0.25, Cache: 10 << 30, TLS: tlsConfig{Cert: "c.pem"},
	}
	want.Level = "warn"
	for name, src := range map[string]config.Sources{
		"flags": {Flags: flags(t, "--listen=x", "--heartbeat-interval=1m", "--admin-token=t", "--pin=1234", "--groups=c", "--groups=d", "--debug",
			"--workers=9", "--serial=-1099511627776", "--rate=.25", "--cache=10GiB", "--tls-cert=c.pem", "--log-level=warn")},
		"environment": {Environ: []string{"EDGE_LISTEN=x", "EDGE_HEARTBEAT_INTERVAL=1m", "EDGE_ADMIN_TOKEN=t", "EDGE_PIN=1234", "EDGE_GROUPS= c, d,",
			"EDGE_DEBUG=true", "EDGE_WORKERS=9", "EDGE_SERIAL=-1099511627776", "EDGE_RATE=.25", "EDGE_CACHE=10GiB", "EDGE_TLS_CERT=c.pem", "EDGE_LOG_LEVEL=warn", "HOME=/"}},
		"file": {File: file(t, "listen: x\nheartbeat-interval: 1m\nadmin-token: t\npin: 1234\ngroups: [c, d]\ndebug: true\n"+
			"workers: 9\nserial: -1099511627776\nrate: .25\ncache: &c 10GiB\ntls-cert: c.pem\nlog-level: warn\n")},
	} {
		var cfg testConfig
		if err := config.Load(&cfg, "EDGE", src); err != nil || !reflect.DeepEqual(cfg, want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", name, err, cfg, want)
		}
	}
}

func TestEverythingWrongIsToldAtOnceWithItsSource(t *testing.T) {
	t.Parallel()
	path := file(
		t, "listen: a\nlistne: b\nworkers: many\nlisten: c\ntls-cert: [x]\nrate:\nhartbeat-interval: 1s\nzzzzzzzz: 1\n",
	)
	text := problem(t, config.Sources{
		File:    path,
		Environ: []string{"EDGE_LISTNE=x", "EDGE_CACHE=1KiB", "EDGE_DEBUG=maybe", "OTHER_LISTNE=x"},
		Flags:   flags(t, "--heartbeat-interval=2h", "--serial=1.5"),
	})
	contains(t, text,
		"12 problems",
		path+":2: listne: unknown key; did you mean listen?",
		path+`:3: workers: "many" is not a whole number`,
		path+":4: listen: given twice, first in line 1",
		path+":5: tls-cert: the value is not a single value",
		path+":6: rate: the value is missing",
		path+":7: hartbeat-interval: unknown key; did you mean heartbeat-interval?",
		path+":8: zzzzzzzz: unknown key\n",
		"environment variable EDGE_LISTNE: no setting has this name; did you mean EDGE_LISTEN?",
		`environment variable EDGE_CACHE: cache: "1KiB" is out of range (at least 1MiB)`,
		`environment variable EDGE_DEBUG: debug: "maybe" is neither true nor false`,
		`flag --heartbeat-interval: heartbeat-interval: "2h" is out of range (from 1s to 1h)`,
		`flag --serial: serial: "1.5" is not a whole number`,
	)
	if strings.Contains(text, "OTHER") {
		t.Error("a variable without the prefix is reported")
	}
}

func TestASingleProblemNamesItsFieldAndAHiddenValueIsCheckedToo(t *testing.T) {
	t.Parallel()
	err := config.Load(
		&testConfig{}, "EDGE", config.Sources{Environ: []string{"EDGE_WORKERS=0"}, Flags: flags(t, "--workers=1")},
	)
	if !fault.Is(err, fault.Invalid) || fault.From(err).Field != "workers" {
		t.Errorf("%v", err)
	}
}

func TestAFileThatCannotBeUsedIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: b: c":             "not valid YAML",
		"- listen":            "expected lines of the form key: value",
		"admin-token: *s3cre": "put it in quotes",
	} {
		path := file(t, text)
		got := problem(t, config.Sources{File: path})
		contains(t, got, path, want)
		if strings.Contains(got, "s3cre") {
			t.Errorf("a part of the file is shown: %s", got)
		}
	}
	contains(t, problem(t, config.Sources{File: "/nowhere/edge.yaml"}), "/nowhere/edge.yaml", "no such file")
	if err := config.Load(&testConfig{}, "EDGE", config.Sources{File: file(t, "# nothing\n")}); err != nil {
		t.Errorf("empty file: %v", err)
	}
}

func TestVariablesOfTheCommandLineAndOfKubernetesAreNoMistakes(t *testing.T) {
	t.Parallel()
	err := config.Load(&testConfig{}, "EDGE_", config.Sources{
		Environ: []string{
			"EDGE_SERVER=http://a",
			"EDGE_URL=http://a",
			"EDGE_TOKEN=t",
			"EDGE_PASSWORD=p",
			"EDGE_SERVICE_HOST=10.0.0.1",
			"EDGE_SERVICE_PORT=80",
			"EDGE_SERVICE_PORT_HTTP=80",
			"EDGE_PORT=tcp://10.0.0.1:80",
			"EDGE_PORT_80_TCP=tcp://10.0.0.1:80",
			"EDGE_PORT_80_TCP_ADDR=10.0.0.1",
			"EDGE_API_SERVICE_HOST=10.0.0.2",
		},
	})
	if err != nil {
		t.Error(err)
	}
	contains(t, problem(t, config.Sources{Environ: []string{"EDGE_PORT=80"}}), "EDGE_PORT")
}

func TestASecretIsReadFromTheFileThatItsVariableNames(t *testing.T) {
	t.Parallel()
	path := file(t, " s3cret \r\n")
	var cfg testConfig
	if err := config.Load(
		&cfg, "EDGE", config.Sources{Environ: []string{"EDGE_ADMIN_TOKEN_FILE=" + path}},
	); err != nil ||
		cfg.Token != " s3cret " {
		t.Errorf("%q, %v", cfg.Token, err)
	}
	contains(
		t, problem(t, config.Sources{Environ: []string{"EDGE_ADMIN_TOKEN_FILE=" + file(t, "\n")}}), "admin-token",
		"EDGE_ADMIN_TOKEN_FILE", "is empty",
	)
	contains(
		t, problem(t, config.Sources{Environ: []string{"EDGE_ADMIN_TOKEN_FILE=/dev/zero"}}), "admin-token",
		"EDGE_ADMIN_TOKEN_FILE", "/dev/zero", "larger than",
	)
	contains(
		t, problem(t, config.Sources{Environ: []string{"EDGE_ADMIN_TOKEN_FILE=/nowhere"}}), "admin-token",
		"EDGE_ADMIN_TOKEN_FILE", "/nowhere",
	)
	contains(
		t, problem(t, config.Sources{Environ: []string{"EDGE_ADMIN_TOKEN=a", "EDGE_ADMIN_TOKEN_FILE=" + path}}),
		"EDGE_ADMIN_TOKEN and EDGE_ADMIN_TOKEN_FILE: admin-token: both",
	)
	contains(
		t, problem(t, config.Sources{Environ: []string{"EDGE_LISTEN_FILE=" + path}}), "EDGE_LISTEN_FILE: no setting",
	)
}

func TestASecretsValueIsInNoErrorAndNoHelp(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]config.Sources{
		"flag":        {Flags: flags(t, "--pin=s3cret")},
		"environment": {Environ: []string{"EDGE_PIN=s3cret"}},
		"named file":  {Environ: []string{"EDGE_PIN_FILE=" + file(t, "s3cret\n")}},
		"file":        {File: file(t, "pin: s3cret")},
		"list":        {File: file(t, "pin: [s3cret]")},
		"small":       {Environ: []string{"EDGE_PIN=77"}},
	} {
		secret := "s3cret"
		if name == "small" { // not looked for in the others, since names of temporary files have digits
			secret = "77"
		}
		got := problem(t, src)
		contains(t, got, "pin")
		if strings.Contains(got, secret) {
			t.Errorf("%s: the value is shown: %s", name, got)
		}
	}
	if help := flags(t, "--admin-token=s3cret").FlagUsages(); strings.Contains(help, "s3cret") {
		t.Errorf("help: %s", help)
	}
}

func TestHelpNamesTheVariableTheDefaultAndTheBounds(t *testing.T) {
	t.Parallel()
	contains(
		t, flags(t).FlagUsages(), "--heartbeat-interval duration",
		"How often agents call. Allowed: from 1s to 1h. [EDGE_HEARTBEAT_INTERVAL] (default 30s)",
		"[EDGE_ADMIN_TOKEN, or a path in EDGE_ADMIN_TOKEN_FILE]", "--debug ",
	)
}

func TestSettingsDescribeTheStructInOrder(t *testing.T) {
	t.Parallel()
	settings := config.Settings(&testConfig{}, "EDGE")
	var keys []string
	for _, s := range settings {
		keys = append(keys, s.Key)
	}
	if got, want := strings.Join(
		keys, " ",
	), "listen heartbeat-interval admin-token pin groups debug workers serial rate cache tls-cert log-level"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	want := config.Setting{
		Key: "heartbeat-interval", Flag: "--heartbeat-interval", Env: "EDGE_HEARTBEAT_INTERVAL", Default: "30s",
		Help: "How often agents call.", Type: "duration", Min: "1s", Max: "1h",
	}
	if !slices.Contains(settings, want) {
		t.Errorf("%+v is not among %+v", want, settings)
	}
	if got := config.Settings(shared{}, ""); len(got) != 1 || got[0].Env != "LOG_LEVEL" {
		t.Errorf("no prefix: %+v", got)
	}
}

func TestMarkdownIsATableOfAllSettings(t *testing.T) {
	t.Parallel()
	const want = "| key | environment | default | what it does |\n" +
		"|---|---|---|---|\n" +
		"| `listen` | `EDGE_LISTEN` | `127.0.0.1:8080` | Address to serve on. |\n" +
		"| `heartbeat-interval` | `EDGE_HEARTBEAT_INTERVAL` | `30s` | How often agents call. Allowed: from 1s to 1h. |\n" +
		"| `admin-token` | `EDGE_ADMIN_TOKEN`, `EDGE_ADMIN_TOKEN_FILE` |  | Token \\| of the administrator. Secret; `EDGE_ADMIN_TOKEN_FILE` is the path of a file that holds it. |\n"
	if got := config.Markdown(config.Settings(testConfig{}, "EDGE")[:3]); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTagsThatMakeNoSensePanic(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]any{
		"no struct": 7,
		"type": struct {
			X []int `key:"x"`
		}{},
		"default": struct {
			X int `key:"x" default:"many"`
		}{},
		"default too small": struct {
			X int `key:"x" default:"1" min:"2"`
		}{},
		"bound": struct {
			X int `key:"x" min:"few"`
		}{},
		"bound of a text": struct {
			X string `key:"x" min:"1"`
		}{},
		"secret default": struct {
			X string `key:"x" secret:"true" default:"1"`
		}{},
		"unexported": struct {
			x int `key:"x"`
		}{},
		"no key": struct {
			X int `key:""`
		}{},
		"twice": struct {
			X, Y int `key:"x"`
		}{},
		"variable twice": struct {
			X int `key:"x" env:"V"`
			Y int `key:"y" env:"V"`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			config.Settings(cfg, "P")
		}()
	}
}
