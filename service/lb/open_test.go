package lb

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
)

func TestWithoutKeysPagesOfOthersMayNotAsk(t *testing.T) {
	t.Parallel()
	n := start(t, unchecked, func(cfg *Config, _ *Deps) { cfg.APIKey, cfg.APIReadonlyKey = "", "" })
	host := strings.TrimPrefix(n.url, "http://")
	refused := 0
	for name, tt := range map[string]struct {
		host, origin, site, code string
	}{
		"a program":           {host, "", "", ""},
		"its console":         {host, n.url, "same-origin", ""},
		"another page":        {host, "https://evil.example", "cross-site", "browser"},
		"a sandboxed page":    {host, "null", "", "browser"},
		"an image":            {host, "", "cross-site", "browser"},
		"rebinding":           {"evil.example", "", "", "foreign_host"},
		"rebinding by a page": {"evil.example", "http://evil.example", "same-origin", "foreign_host"},
	} {
		for method, path := range map[string]string{"GET": "/node", "POST": "/backends/1/drain"} {
			req, err := http.NewRequestWithContext(t.Context(), method, n.url+lbapi.BasePath+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = tt.host
			req.Header.Set("Content-Type", "application/json")
			for key, value := range map[string]string{"Origin": tt.origin, "Sec-Fetch-Site": tt.site} {
				if value != "" {
					req.Header.Set(key, value)
				}
			}
			res, err := n.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || (res.StatusCode == 200) != (tt.code == "") ||
				tt.code != "" && (res.StatusCode != 403 || !strings.Contains(string(body), `"`+tt.code+`"`)) {
				t.Errorf("%s: %s %s: %d %s %v", name, method, path, res.StatusCode, body, err)
			}
			if res.StatusCode == 403 {
				refused++
			}
		}
	}
	if metrics := n.send("GET", "/metrics", "", "", "").Body; !strings.Contains(
		metrics,
		fmt.Sprintf(`lb_api_auth_failures_total{reason="forbidden"} %d`, refused),
	) {
		t.Errorf("%d were refused: %s", refused, metrics)
	}
}

func TestANodeThatIsOpenToEverybodySaysSo(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		listen, key string
		insecure    bool
	}{
		"all addresses":           {"0.0.0.0:0", "", true},
		"all addresses with keys": {"0.0.0.0:0", longA, false},
		"loopback":                {"127.0.0.1:0", "", false},
	} {
		n := start(
			t, unchecked,
			func(cfg *Config, _ *Deps) { cfg.Listen, cfg.APIKey, cfg.APIReadonlyKey = tt.listen, tt.key, "" },
		)
		gauge := map[bool]string{true: "\nlb_insecure 1\n", false: "\nlb_insecure 0\n"}[tt.insecure]
		if metrics := n.send("GET", "/metrics", "", "", "").Body; !strings.Contains(metrics, gauge) {
			t.Errorf("%s: no %q in the metrics", name, gauge)
		}
		if node := contracttest.As[lbapi.Node](n.call("GET", "/node", tt.key, "").Want(200)); node.Insecure != tt.insecure {
			t.Errorf("%s: %+v", name, node)
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Hour/2)
			defer cancel()
			n.service.warnInsecure(ctx, "x:1")
		})
		if lines := n.log.lines("level=WARN msg=\"everybody who reaches this load balancer"); len(
			lines,
		) != map[bool]int{true: 3, false: 0}[tt.insecure] {
			t.Errorf("%s: in two and a half hours it logged %q", name, lines)
		}
	}
}

func TestAServiceLogsWhereItListens(t *testing.T) {
	t.Parallel()
	plane, log := newMemoryPlane(), &logBuffer{}
	cfg := defaults(t, unchecked)
	cfg.Listen, cfg.APIKey, cfg.APIReadonlyKey = "0.0.0.0:0", "", ""
	s, err := New(cfg, Deps{
		Log:      slog.New(slog.NewTextHandler(log, nil)),
		Registry: prometheus.NewRegistry(),
		Now:      time.Now,
		Speaker:  &memorySpeaker{},
		Open:     func(context.Context, PlaneOptions) (Plane, Hops, error) { return plane, plane, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := s.Serve(ctx, func(string) { stop() }); err != nil {
		t.Fatal(err)
	}
	if len(log.lines("msg=\"listening on ")) != 1 || len(log.lines(", all addresses")) == 0 ||
		len(log.lines("everybody who reaches")) != 1 {
		t.Errorf("%q", log.lines(""))
	}
}
