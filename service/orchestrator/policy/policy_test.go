package policy_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/orchestrator/policy"
	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

func builtIn(t *testing.T) *policy.Rules {
	t.Helper()
	r, err := policy.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// good are documents that keep all rules of production.
var good = map[string]string{
	"web": `apiVersion: orch/v1
metadata: {name: web, owner: ann@example.com, class: web-service}
image: {registry: registry.example.com, repository: web, tag: "1", digest: "sha256:` + strings.Repeat("0", 64) + `"}
requirements: {cpu: 100m, memory: 64Mi}
resources: {memory: 128Mi, pids: 100}
scaling: {replicas: 2}
network: {ports: [{port: 8080, publish: 80}], ingress: [{host: example.com, port: 8080, tls: cert}], allowFrom: [gateway]}
health: {ready: {http: {path: /ready, port: 8080}}, live: {tcp: 8080}}
env: {LOG: info, TOKEN_URL: "https://example.com", PASSWORD: ""}
configMaps: [{name: a, mountPath: /etc/a, data: {a: "BEGIN CERTIFICATE-----"}}]
security: {user: 1000, readOnlyRoot: true, dropCapabilities: [ALL]}
monitoring: {sla: {targetUptime: 99.9}}
`,
	"database": `apiVersion: orch/v1
metadata: {name: db, owner: ann@example.com, class: database}
image: {registry: registry.example.com, repository: db, tag: "1", digest: "sha256:` + strings.Repeat("0", 64) + `"}
requirements: {cpu: 100m, memory: 64Mi}
resources: {memory: 128Mi, pids: 100}
scaling: {replicas: 1}
network: {ports: [{port: 5432}], allowFrom: [web]}
persistence: {volumes: [{name: data, mountPath: /data}]}
health: {ready: {exec: [check]}, live: {tcp: 5432}}
security: {nonRoot: true, readOnlyRoot: true, dropCapabilities: [ALL]}
`,
	"cron": `apiVersion: orch/v1
kind: CronJob
metadata: {name: report, owner: ann@example.com, class: batch-job}
build: {context: "https://git.example.com/a.git#v1", registry: registry.example.com}
requirements: {cpu: 100m, memory: 64Mi}
resources: {memory: 128Mi, pids: 100}
security: {user: 1000, readOnlyRoot: true, dropCapabilities: [ALL]}
schedule: {cron: "@daily"}
`,
}

func read(t *testing.T, text string) *spec.Spec {
	t.Helper()
	s, warnings, err := spec.Read([]byte(text))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v %v\n%s", err, warnings, text)
	}
	return s
}

func TestGoodWorkloadsKeepAllRules(t *testing.T) {
	t.Parallel()
	rules := builtIn(t)
	if all := rules.List(); len(all) < 30 {
		t.Errorf("there are %d rules", len(all))
	}
	for name, text := range good {
		for _, set := range []string{policy.Production, policy.Development} {
			r := rules.Check(set, read(t, text))
			if len(r.Violations) > 0 || r.Checked < 5 {
				t.Errorf("%s, %s: %+v", name, set, r)
			}
		}
	}
}

// breaks are changes of the good documents, each of which breaks one rule.
var breaks = map[string]struct{ of, old, to string }{
	"image-has-a-tag":             {"web", `tag: "1", digest: "sha256:` + strings.Repeat("0", 64) + `"`, "tag: latest"},
	"image-is-pinned":             {"web", `, digest: "sha256:` + strings.Repeat("0", 64) + `"`, ""},
	"image-registry-is-own":       {"web", "registry: registry.example.com, ", ""},
	"build-is-pushed":             {"cron", ", registry: registry.example.com", ""},
	"build-names-a-ref":           {"cron", "#v1", ""},
	"runs-as-a-user":              {"web", "user: 1000, ", ""},
	"no-escalation":               {"web", "user: 1000", "user: 1000, escalation: true"},
	"root-is-read-only":           {"web", "readOnlyRoot: true, ", ""},
	"capabilities-are-dropped":    {"web", "[ALL]", "[NET_RAW]"},
	"cpu-is-required":             {"web", "cpu: 100m, ", ""},
	"memory-is-required":          {"web", "cpu: 100m, memory: 64Mi", "cpu: 100m"},
	"memory-is-limited":           {"web", "memory: 128Mi, ", ""},
	"memory-limit-is-near":        {"web", "memory: 128Mi", "memory: 1Gi"},
	"processes-are-limited":       {"web", ", pids: 100", ""},
	"several-instances":           {"web", "replicas: 2", "replicas: 1"},
	"scales-from-two":             {"web", "replicas: 2", "replicas: 2, max: 5"},
	"scales-with-room":            {"web", "replicas: 2", "min: 5, max: 5"},
	"target-leaves-room":          {"web", "replicas: 2", "min: 2, max: 5, targetCPU: 95"},
	"starts-again":                {"web", "monitoring", "restart: {policy: never}\nmonitoring"},
	"sla-is-reachable":            {"web", "replicas: 2", "replicas: 1"},
	"has-a-ready-check":           {"web", "ready: {http: {path: /ready, port: 8080}}, ", ""},
	"has-a-live-check":            {"web", ", live: {tcp: 8080}", ""},
	"live-is-not-ready":           {"web", "live: {tcp: 8080}", "live: {http: {path: /ready, port: 8080}}"},
	"checks-are-calm":             {"database", "exec: [check]", "exec: [check], interval: 2s"},
	"no-low-ports-published":      {"web", "publish: 80", "publish: 22"},
	"databases-are-not-published": {"database", "port: 5432}], allow", "port: 5432, publish: 5432}], allow"},
	"peers-are-named":             {"database", ", allowFrom: [web]", ""},
	"no-open-networks":            {"web", "[gateway]", "[gateway, 0.0.0.0/0]"},
	"ingress-has-tls":             {"web", ", tls: cert", ""},
	"ingress-has-a-host":          {"web", "host: example.com, port: 8080, tls: cert", "port: 8080"},
	"secrets-are-not-in-env":      {"web", `PASSWORD: ""`, "DB_PASSWORD: x"},
	"no-keys-in-files":            {"web", "BEGIN CERTIFICATE", "BEGIN EC PRIVATE KEY"},
	"databases-keep-their-data":   {"database", "mountPath: /data", "mountPath: /data, ephemeral: true"},
	"databases-are-not-shared":    {"database", "scaling: {replicas: 1}", "scaling: {replicas: 2}"},
	"cron-jobs-do-not-overlap":    {"cron", `"@daily"`, `"@daily", overlap: allow`},
	"jobs-are-tried-again":        {"cron", "schedule", "restart: {retries: 0}\nschedule"},
	"has-an-owner":                {"web", "owner: ann@example.com, ", ""},
	"has-a-class":                 {"web", ", class: web-service", ""},
}

func TestEachRuleIsBrokenByAWorkload(t *testing.T) {
	t.Parallel()
	rules := builtIn(t)
	for _, rule := range rules.List() {
		b, ok := breaks[rule.ID]
		if !ok {
			t.Errorf("no workload breaks %s", rule.ID)
			continue
		}
		text := strings.Replace(good[b.of], b.old, b.to, 1)
		if rule.ID == "databases-are-not-shared" {
			text = strings.Replace(text, "mountPath: /data", "mountPath: /data, shared: true", 1)
		}
		if text == good[b.of] {
			t.Errorf("%s: nothing is changed", rule.ID)
		}
		for _, set := range rule.Sets {
			found := false
			for _, v := range rules.Check(set, read(t, text)).Violations {
				if v.Failed != "" {
					t.Errorf("%s failed: %s", v.ID, v.Failed)
				}
				found = found || v.ID == rule.ID && v.Severity == rule.Severity && v.Fix != "" && v.Reason != ""
			}
			if !found {
				t.Errorf("%s is not broken in %s by\n%s", rule.ID, set, text)
			}
		}
	}
}

func TestRulesNameKeysOfTheDocument(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, row := range spec.Reference() {
		known[strings.ReplaceAll(row.Key, "[]", "")] = true
	}
	for _, rule := range builtIn(t).List() {
		if !known[rule.Path] {
			t.Errorf("%s: there is no key %s", rule.ID, rule.Path)
		}
	}
}

func TestViolationsComeInTheOrderOfTheirSeverity(t *testing.T) {
	t.Parallel()
	bad := read(t, "apiVersion: orch/v1\nmetadata: {name: a}\nimage: {repository: a}\nenv: {TOKEN: x}\nsecurity: {escalation: true}\n")
	r := builtIn(t).Check(policy.Production, bad)
	var order []string
	for _, v := range r.Violations {
		order = append(order, v.Severity)
	}
	if !regexp.MustCompile(`^(critical )+(high )+(medium )+(low )+$`).MatchString(strings.Join(order, " ")+" ") ||
		r.Violations[0].ID != "no-escalation" || r.Violations[1].ID != "secrets-are-not-in-env" {
		t.Errorf("%+v", r.Violations)
	}
	if !r.Blocks("critical") || !r.Blocks("low") || (&policy.Result{}).Blocks("low") {
		t.Error("it does not block")
	}
	again := builtIn(t).Check(policy.Production, bad)
	if !reflect.DeepEqual(r, again) {
		t.Error("a second check differs")
	}
	if dev := builtIn(t).Check(policy.Development, bad); dev.Blocks("low") != true || len(dev.Violations) >= len(r.Violations) {
		t.Errorf("%+v", dev)
	}
}

const own = "rules:\n  - {id: own, severity: high, sets: [production], path: metadata.project, holds: %s, reason: R., fix: F.}\n"

func TestOwnRulesAreAddedAndReplaceOthers(t *testing.T) {
	t.Parallel()
	rules, err := builtIn(t).With([]byte(strings.Replace(own, "%s", `'spec.metadata.project != ""'`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(rules.List()); n != len(builtIn(t).List())+1 {
		t.Errorf("%d rules", n)
	}
	r := rules.Check(policy.Production, read(t, good["web"]))
	if len(r.Violations) != 1 || r.Violations[0].ID != "own" {
		t.Errorf("%+v", r)
	}
	rules, err = rules.With([]byte(strings.Replace(own, "%s", "'true'", 1)))
	if err != nil || len(rules.Check(policy.Production, read(t, good["web"])).Violations) > 0 {
		t.Errorf("the rule is not replaced: %v", err)
	}
}

func TestARuleThatFailsIsAViolation(t *testing.T) {
	t.Parallel()
	for holds, says := range map[string]string{
		`'spec.nothing.at.all'`:    "no such key",
		`'spec.metadata.name'`:     "neither true nor false",
		`'spec.metadata.name > 1'`: "no such overload",
		// As many steps as a workload's text has, for each of them again.
		`'[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a > 0))))))'`: "cost limit",
	} {
		rules, err := builtIn(t).With([]byte(strings.Replace(own, "%s", holds, 1)))
		if err != nil {
			t.Errorf("%s: %v", holds, err)
			continue
		}
		r := rules.Check(policy.Production, read(t, good["web"]))
		if len(r.Violations) != 1 || !strings.Contains(r.Violations[0].Failed, says) {
			t.Errorf("%.40s: %+v", holds, r.Violations)
		}
	}
}

func TestFilesOfRulesAreChecked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "it needs rules",
		"rules: []":                              "", // none is fine
		strings.Replace(own, "%s", "'1 +'", 1):   "rules[0].holds: is not a valid expression",
		strings.Replace(own, "%s", "'1'", 1):     "rules[0].holds: must be true or false",
		strings.Replace(own, "%s", "unknown", 1): "rules[0].holds: is not a valid expression",
		strings.Replace(strings.Replace(own, "high", "huge", 1), "%s", "'true'", 1):                        `rules[0].severity: must be critical, high, medium, low, not "huge"`,
		strings.Replace(strings.Replace(own, "sets: [production]", "sets: []", 1), "%s", "'true'", 1):      "rules[0].sets: is required",
		strings.Replace(strings.Replace(own, "sets: [production]", "sets: [other]", 1), "%s", "'true'", 1): "rules[0].sets[0]: must be production, development",
		strings.Replace(own+strings.TrimPrefix(own, "rules:\n"), "%s", "'true'", 2):                        "rules[1].id: is that of another rule, too",
	} {
		_, err := builtIn(t).With([]byte(text))
		if want == "" && err == nil {
			continue
		}
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) || want == "" {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
