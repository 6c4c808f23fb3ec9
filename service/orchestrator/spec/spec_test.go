package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

// document returns a small valid one with more lines.
func document(more string) string {
	return "apiVersion: orch/v1\nmetadata: {name: web}\nimage: {repository: library/nginx}\n" + more
}

func read(t *testing.T, text string) *spec.Spec {
	t.Helper()
	s, warnings, err := spec.Read([]byte(text))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", err, warnings)
	}
	return s
}

func TestASmallDocumentHasItsDefaults(t *testing.T) {
	t.Parallel()
	s := read(t, document("network: {ports: [{port: 80}]}\nscaling: {max: 5}\nrequirements: {cpu: 500m}\n"))
	if s.Kind != spec.Workload || s.Image.Registry != "docker.io" || s.Image.Tag != "latest" || s.Restart.Policy != "always" ||
		s.Restart.Stop != spec.Duration(10*time.Second) || s.Scaling != (spec.Scaling{Replicas: 1, Min: 1, Max: 5, TargetCPU: 80}) ||
		s.Network.Ports[0] != (spec.Port{Name: "tcp-80", Port: 80, Protocol: "tcp"}) || s.Requirements.CPU != 500 {
		t.Errorf("%+v", s)
	}
	if pinned := read(t, document("kind: Job\n")+"args: [a]\n"); pinned.Restart.Policy != "on-failure" {
		t.Errorf("%+v", pinned.Restart)
	}
	digest := "sha256:" + strings.Repeat("a", 64)
	if s := read(t, strings.Replace(document(""), "library/nginx", "library/nginx, digest: '"+digest+"'", 1)); s.Image.Tag != "" || s.Image.Digest != digest {
		t.Errorf("%+v", s.Image)
	}
}

// examples are whole documents, which the reader, the JSON Schema and the writer must agree on.
func examples(t *testing.T) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%v, %v", paths, err)
	}
	all := map[string][]byte{}
	for _, path := range paths {
		if all[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestADocumentThatIsReadIsWrittenAsTheSame(t *testing.T) {
	t.Parallel()
	for name, text := range examples(t) {
		first := read(t, string(text))
		written, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if second := read(t, string(written)); !reflect.DeepEqual(first, second) {
			t.Errorf("%s: %s\n%+v\n%+v", name, written, first, second)
		}
		back := &spec.Spec{}
		if err := json.Unmarshal(written, back); err != nil || !reflect.DeepEqual(first, back) {
			t.Errorf("%s: by its tags: %v\n%+v\n%+v", name, err, first, back)
		}
	}
}

// alike are parts of documents that have the same keys.
var alike = strings.NewReplacer("health.live.", "health.ready.", "health.startup.", "health.ready.", "runtime.disk.", "image.")

func TestEveryKeyIsInAnExample(t *testing.T) {
	t.Parallel()
	given := map[string]bool{}
	var visit func(v any, path string)
	visit = func(v any, path string) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				at := strings.TrimPrefix(path+"."+key, ".")
				given[alike.Replace(at)] = true
				visit(value, at)
			}
		case []any:
			for _, item := range v {
				if _, ok := item.(map[string]any); ok {
					given[path+"[]"] = true
				}
				visit(item, path+"[]")
			}
		}
	}
	for _, text := range examples(t) {
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		visit(v, "")
	}
	for _, row := range spec.Reference() {
		if !given[alike.Replace(row.Key)] {
			t.Errorf("no example has %s", row.Key)
		}
		if row.Meaning == "" || !strings.HasSuffix(row.Meaning, ".") {
			t.Errorf("%s: %q", row.Key, row.Meaning)
		}
	}
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	raw, err := json.Marshal(spec.Schema())
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("spec.json", parsed); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("spec.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func valid(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(instance)
}

func TestTheJSONSchemaTakesWhatIsRead(t *testing.T) {
	t.Parallel()
	s := schema(t)
	for name, text := range examples(t) {
		if err := valid(t, s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, wrong := range []string{"kind: Other\n", "scaling: {replicas: 1001}\n", "requirements: {cpu: lots}\n", "env: 1\n", "network: {ports: [{}]}\n"} {
		if err := valid(t, s, []byte(document(wrong))); err == nil {
			t.Errorf("%q is valid", wrong)
		}
	}
}

func TestWhatIsWrongIsToldWithItsPathAndLine(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]string{
		"kind: CronJob\n":                                                                     "schedule: is required for the kind CronJob",
		"schedule: {cron: '@daily'}\n":                                                        "schedule: is for the kind CronJob only (line 4)",
		"kind: Job\nscaling: {replicas: 2}\n":                                                 "scaling: is for the kind Workload only (line 5)",
		"kind: Job\nrestart: {policy: always}\n":                                              "restart.policy: must be on-failure or never for the kind Job",
		"restart: {policy: on-failure}\n":                                                     "restart.policy: must be always or never",
		"build: {context: 'upload:x'}\n":                                                      "build: cannot be given beside image (line 4)",
		"scaling: {min: 2}\n":                                                                 "scaling.min: needs scaling.max",
		"scaling: {min: 3, max: 2, targetCPU: 50}\n":                                          "scaling.min: must be at most scaling.max, 2, not 3",
		"scaling: {max: 2}\n":                                                                 "requirements.cpu: is required to scale by processors",
		"scaling: {targetCPU: 50}\n":                                                          "scaling.max: is required with a target",
		"scaling: {replicas: 1001}\n":                                                         "scaling.replicas: must be at most 1000, not 1001",
		"requirements: {memory: 2Gi}\nresources: {memory: 1Gi}\n":                             "resources.memory: must be at least what is required, 2Gi, not 1Gi (line 5)",
		"requirements: {cpu: '0'}\n":                                                          "requirements.cpu: must be more than 0",
		"requirements: {cpu: -1}\n":                                                           "requirements.cpu: must be an amount of processors",
		"requirements: {memory: 1e3}\n":                                                       "requirements.memory: must be an amount of bytes",
		"runtime: {preferred: podman, allow: [kubernetes]}\n":                                 "runtime.preferred: must be one of runtime.allow",
		"runtime: {allow: [podman, podman]}\n":                                                "runtime.allow[1]: is the same as runtime.allow[0]",
		"network: {ports: [{port: 80}, {port: 80}]}\n":                                        "network.ports[1]: is the same as network.ports[0]",
		"network: {ports: [{port: 80, name: a}, {port: 80, name: b}]}\n":                      "network.ports[1].port: is the same as network.ports[0].port",
		"network: {ports: [{port: 80, publish: 9}, {port: 81, publish: 9}]}\n":                "network.ports[1].publish: is the same as network.ports[0].publish",
		"network: {ports: [{port: 0}]}\n":                                                     "network.ports[0].port: must be at least 1",
		"network: {ports: [{port: 65536}]}\n":                                                 "network.ports[0].port: must be at most 65535",
		"network: {ingress: [{port: 80}]}\n":                                                  "network.ingress[0].port: must be one of network.ports",
		"network: {ports: [{port: 80, protocol: udp}], ingress: [{port: 80}]}\n":              "network.ingress[0].port: must be one of network.ports",
		"network: {ports: [{port: 80}], ingress: [{port: 80}, {port: 80, path: /}]}\n":        "network.ingress[1]: is the same as network.ingress[0]",
		"network: {ports: [{port: 80}], ingress: [{port: 80, tls: cert}]}\n":                  "network.ingress[0].host: is required with tls",
		"network: {allowFrom: [10.0.0.1/8]}\n":                                                "network.allowFrom[0]: must be the name of a workload, or a network",
		"network: {vip: 192.0.2.1}\n":                                                         "network.ports: is required with network.vip",
		"network: {ports: [{port: 80}], vip: web}\n":                                          "network.vip: must be an IP address",
		"persistence: {volumes: [{name: a, mountPath: /}]}\n":                                 "persistence.volumes[0].mountPath: must be an absolute path",
		"persistence: {volumes: [{name: a, mountPath: /a/../b}]}\n":                           "persistence.volumes[0].mountPath: must be a path without . and ..",
		"persistence: {volumes: [{name: a, mountPath: /proc/x}]}\n":                           "persistence.volumes[0].mountPath: must not be in /proc",
		"persistence: {volumes: [{name: a, mountPath: /a}, {name: a, mountPath: /b}]}\n":      "persistence.volumes[1]: is the same as persistence.volumes[0]",
		"persistence: {volumes: [{name: a, mountPath: /a}, {name: b, mountPath: /a}]}\n":      "persistence.volumes[1].mountPath: is the same as persistence.volumes[0].mountPath",
		"persistence: {volumes: [{name: a, mountPath: /a, ephemeral: true, shared: true}]}\n": "persistence.volumes[0].ephemeral: cannot be given with",
		"configMaps: [{name: a, mountPath: /a, data: {../x: y}}]\n":                           `configMaps[0].data: "../x" must be letters`,
		"secrets: [{name: a}]\n":                                                              "secrets[0]: give exactly one of env and mountPath",
		"secrets: [{name: a, env: A}]\n":                                                      "secrets[0].key: is required with env",
		"env: {A: x}\nsecrets: [{name: a, key: k, env: A}]\n":                                 "secrets[0].env: is also one of env",
		"secrets: [{name: a, key: k, env: A}, {name: b, key: k, env: A}]\n":                   "secrets[1].env: is the same as secrets[0].env",
		"secrets: [{name: a, key: k, mountPath: /a}, {name: b, mountPath: /a}]\n":             "secrets[1].mountPath: is the same as secrets[0].mountPath",
		"secrets: [{name: a, mountPath: /a}, {name: a, mountPath: /a}]\n":                     "secrets[1].mountPath: is the same as",
		"env: {1A: x}\n":                                                   `env: "1A" must be letters, digits and underscores`,
		"health: {ready: {}}\n":                                            "health.ready: give exactly one of http, tcp and exec",
		"health: {ready: {tcp: 80, exec: [a]}}\n":                          "health.ready: give exactly one of http, tcp and exec",
		"health: {live: {tcp: 80, interval: 1s}}\n":                        "health.live.timeout: must be at most interval, 1s, not 2s",
		"dependsOn: [web]\n":                                               "dependsOn[0]: is the workload itself",
		"kind: CronJob\nschedule: {cron: 61 * * * *}\n":                    "schedule.cron: must be five fields",
		"kind: CronJob\nschedule: {cron: '@every 1s'}\n":                   "schedule.cron: must be five fields",
		"kind: CronJob\nschedule: {cron: 'TZ=UTC 1 * * * *'}\n":            "schedule.cron: must be five fields",
		"kind: CronJob\nschedule: {cron: '@daily', timeZone: Mars/Base}\n": "schedule.timeZone: must be the name of a time zone",
		"monitoring: {sla: {targetUptime: 100}}\n":                         "monitoring.sla.targetUptime: must be at most 99.999",
		"security: {dropCapabilities: [CAP_NET_RAW, net_raw]}\n":           "security.dropCapabilities[1]: must be a capability",
		"metadata: {name: web}\n":                                          "is given twice",
	} {
		_, _, err := spec.Read([]byte(document(more)))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", more, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "it needs apiVersion", "apiVersion: orch/v2\nmetadata: {name: a}\nimage: {repository: a}\n": `apiVersion: must be orch/v1, not "orch/v2"`,
		"apiVersion: orch/v1\nmetadata: {name: web}\n":                                                     "image: is required, unless there is build",
		"apiVersion: orch/v1\nimage: {repository: a}\n":                                                    "metadata: is required",
		"apiVersion: orch/v1\nmetadata: {name: Web}\nimage: {repository: a}\n":                             "metadata.name: must be lower-case letters",
		"apiVersion: orch/v1\nmetadata: {name: a--b}\nimage: {repository: a}\n":                            "single hyphens",
		"apiVersion: orch/v1\nmetadata: {name: a-}\nimage: {repository: a}\n":                              "single hyphens",
		"apiVersion: orch/v1\nmetadata: {name: " + strings.Repeat("a", 41) + "}\nimage: {repository: a}\n": "at most 40",
		"apiVersion: orch/v1\nmetadata: {name: a}\nimage: {repository: A b}\n":                             "image.repository: must be a repository",
		"apiVersion: orch/v1\nmetadata: {name: a}\nbuild: {context: /srv/app}\n":                           "build.context: must be an upload",
		"apiVersion: orch/v1\nmetadata: {name: a}\nbuild: {context: 'upload:x', dockerfile: ../x}\n":       "build.dockerfile: must be a path in the context",
	} {
		_, _, err := spec.Read([]byte(text))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestWhatReachesIntoTheHostIsRefusedByItsPath(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]string{
		"security: {privileged: true}\n": "security.privileged: workloads do not get privileged containers (line 4)",
		"hostNetwork: true\n":            "hostNetwork: workloads do not get the host's network",
		"persistence: {volumes: [{name: a, mountPath: /a, hostPath: {path: /}}]}\n": "persistence.volumes[0].hostPath: workloads do not get paths of the host",
		"devices: [/dev/kvm]\n":                    "devices: workloads do not get devices of the host",
		"security: {cap_add: [ALL]}\n":             "security.cap_add: workloads do not get more capabilities",
		"x: &x {privileged: true}\nsecurity: *x\n": "privileged: workloads do not get",
	} {
		_, _, err := spec.Read([]byte(document(more)))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", more, err, want)
		}
	}
	// What a person calls so is not meant.
	read(t, document("env: {privileged: 'yes', devices: none}\nannotations: {hostPath: x}\nconfigMaps: [{name: a, mountPath: /a, data: {hostNetwork: x}}]\n"))
}

func TestKeysOfASecretMayShareAFolder(t *testing.T) {
	t.Parallel()
	read(t, document("secrets: [{name: a, key: k, mountPath: /a}, {name: a, key: l, mountPath: /a}]\n"))
}

func TestUnknownKeysAreWarnings(t *testing.T) {
	t.Parallel()
	s, warnings, err := spec.Read([]byte(document("scalling: {replicas: 3}\nnetwork: {prots: []}\n")))
	want := []string{"scalling: unknown key; did you mean scaling? (line 4)", "network.prots: unknown key; did you mean ports? (line 5)"}
	if err != nil || !reflect.DeepEqual(warnings, want) || s.Scaling.Replicas != 1 {
		t.Errorf("%v, %q", err, warnings)
	}
}

func TestMessagesHoldNoValuesOfEnv(t *testing.T) {
	t.Parallel()
	for _, more := range []string{
		"env: {PASSWORD: [hunter2]}\n", "env: {PASSWORD: \"a\\0hunter2\"}\n", "env: {PASSWORD: {hunter2: hunter2}}\n",
		"configMaps: [{name: a, mountPath: /a, data: {x: [hunter2]}}]\n", "env: {A: *hunter2}\n", "annotations: {a: [hunter2]}\n",
	} {
		_, warnings, err := spec.Read([]byte(document(more)))
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(strings.Join(warnings, ""), "hunter2") {
			t.Errorf("%q: %v, %v", more, err, warnings)
		}
	}
}

func TestAmountsAreReadAndWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"500m": "500m", "2": "2", "0.5": "500m", "1.5": "1500m", "1000m": "1", "0.001": "1m", "1000000": "1000000"} {
		if c, err := spec.ParseCPU(text); err != nil || c.String() != want {
			t.Errorf("%s: %s, %v", text, c, err)
		}
	}
	for text, want := range map[string]string{"512Mi": "512Mi", "1.5Gi": "1536Mi", "1048576": "1Mi", "1k": "1000", "2G": "1953125Ki", "1000001": "1000001", "0.5Ki": "512", "1024Gi": "1Ti"} {
		if b, err := spec.ParseBytes(text); err != nil || b.String() != want {
			t.Errorf("%s: %s, %v", text, b, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "1e3", "1Pi", "1 Gi", "x", "0m", "1.2345", "99999999999999999999", "1.5m", "１"} {
		if c, err := spec.ParseCPU(text); err == nil {
			t.Errorf("%q is %s processors", text, c)
		}
	}
	for _, text := range []string{"", "0", "-1", "1e3", "1Pi", "1 Gi", "x", "0.0001", "99999999999999999999", "９９", "99999999999999Ti"} {
		if b, err := spec.ParseBytes(text); err == nil {
			t.Errorf("%q is %s bytes", text, b)
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, name := range []string{"web", "batch", "database"} {
		text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("a: &a [*a, *a]\nb: *a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, _, err := spec.Read(text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("%v", err)
			}
			return
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := spec.Read(written)
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%s\nis read as %+v, %v", written, again, err)
		}
	})
}
