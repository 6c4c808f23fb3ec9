package convert_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/kubetest"
	"github.com/mainstay-infra/mainstay/service/orchestrator/convert"
	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

var update = flag.Bool("update", false, "write the files of testdata anew")

func TestMain(m *testing.M) { kubetest.Main(m) }

var owner = convert.Owner{Server: "0199f2a4-58a4-7dcb-b0d5-3b8f6d1d2c3e", Workload: "0199f2a4-6f0e-7b52-8a3e-2f6c1f0e9d11"}

func read(t *testing.T, text string) *spec.Spec {
	t.Helper()
	s, warnings, err := spec.Read([]byte(text))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, %v", err, warnings)
	}
	return s
}

// examples are the documents of package spec, and those that only conversions need.
func examples(t *testing.T) map[string]*spec.Spec {
	t.Helper()
	all := map[string]*spec.Spec{}
	for _, pattern := range []string{"../spec/testdata/*.yaml", "testdata/*.spec.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", pattern, paths, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(filepath.Base(path), ".")
			all[name] = read(t, string(text))
		}
	}
	return all
}

func objects(t *testing.T, s *spec.Spec, k convert.Kubernetes) ([]convert.Object, *convert.Notes) {
	t.Helper()
	all, notes := convert.ToKubernetes(s, owner, k)
	if err := notes.Problems.Fault(); err != nil {
		t.Fatal(err)
	}
	return all, notes
}

// cluster is what the tests say of the cluster.
var cluster = convert.Kubernetes{Namespace: "workloads", Image: "registry.example.com/built@sha256:" + strings.Repeat("ab", 32), PullSecret: "registry"}

func TestObjectsOfKubernetesAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	for name, s := range examples(t) {
		all, notes := objects(t, s, cluster)
		golden(t, name+".kubernetes.yaml", written(t, all, notes))
	}
}

// written returns what a conversion said, and its objects.
func written(t *testing.T, all []convert.Object, notes *convert.Notes) string {
	t.Helper()
	var got bytes.Buffer
	for _, problem := range notes.Problems.Lines() {
		got.WriteString("# refused: " + problem + "\n")
	}
	for _, warning := range notes.Warnings.Lines() {
		got.WriteString("# " + warning + "\n")
	}
	if !notes.Problems.None() {
		return got.String()
	}
	w := yaml.NewEncoder(&got)
	w.SetIndent(2)
	for _, o := range all {
		if err := w.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	return got.String()
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		t.Errorf("%s differs (%v); see go test -update, and review what changes:\n%s", path, err, got)
	}
}

var plurals = map[string]string{"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}

// taken gives objects to an API server, which refuses those with fields that it does not know, and those that are not
// valid.
func taken(t *testing.T, c *kubetest.Cluster, what string, all []convert.Object) {
	t.Helper()
	if len(all) == 0 {
		t.Errorf("%s has no objects", what)
	}
	for range 2 { // and again, as an update without a change
		for _, o := range all {
			meta := o["metadata"].(convert.Object)
			group, version, found := strings.Cut(o["apiVersion"].(string), "/")
			if !found {
				group, version = "", group
			}
			kind := o["kind"].(string)
			plural := plurals[kind]
			if plural == "" {
				plural = strings.ToLower(kind) + "s"
			}
			r := kube.Resource{Group: group, Version: version, Kind: kind, Plural: plural}
			if _, err := kube.Apply(t.Context(), c.Client, r, meta["namespace"].(string), meta["name"].(string), &o); err != nil {
				t.Errorf("%s: %s %s: %v", what, kind, meta["name"], err)
			}
		}
	}
}

func TestTheAPIServerTakesTheObjects(t *testing.T) {
	t.Parallel()
	c := kubetest.Shared(t)
	for name, s := range examples(t) {
		s.Runtime.Namespace = c.Namespace(t)
		all, _ := objects(t, s, cluster)
		taken(t, c, name, all)
	}
}

func TestPodsDoNotDependOnTheOrderOfMaps(t *testing.T) {
	t.Parallel()
	s := examples(t)["web"]
	s.Env = map[string]string{}
	for _, name := range strings.Split("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "") {
		s.Env[name] = name
	}
	first := ""
	for range 20 {
		all, _ := objects(t, s, cluster)
		raw, err := yaml.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(raw)
		} else if string(raw) != first {
			t.Fatal("two conversions of the same document differ")
		}
	}
}

func TestWhatIsNotBuiltIsNotConverted(t *testing.T) {
	t.Parallel()
	s := examples(t)["batch"]
	_, notes := convert.ToKubernetes(s, owner, convert.Kubernetes{Namespace: "workloads"})
	if err := notes.Problems.Fault(); err == nil || !strings.HasPrefix(err.Error(), "build: ") {
		t.Errorf("%v", err)
	}
}

func TestReferencesInVariablesAreTexts(t *testing.T) {
	t.Parallel()
	s := read(t, "apiVersion: orch/v1\nmetadata: {name: web}\nimage: {repository: library/nginx}\nenv: {A: '$(B) $$(C) $D'}\n")
	all, _ := objects(t, s, convert.Kubernetes{Namespace: "workloads"})
	raw, err := yaml.Marshal(all)
	if err != nil || !strings.Contains(string(raw), "value: $$(B) $$$(C) $D") {
		t.Errorf("%s", raw)
	}
}
