package template_test

import (
	"slices"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/orchestrator/convert"
	"github.com/mainstay-infra/mainstay/service/orchestrator/policy"
	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
	"github.com/mainstay-infra/mainstay/service/orchestrator/template"
)

// runtimes returns those that can run a workload.
func runtimes(s *spec.Spec) (all []string) {
	if _, notes := convert.ToPodman(s, convert.Owner{}, convert.Podman{}); notes.Problems.None() {
		all = append(all, "podman")
	}
	if _, notes := convert.ToKubernetes(s, convert.Owner{}, convert.Kubernetes{}); notes.Problems.None() {
		all = append(all, "kubernetes")
	}
	if _, notes := convert.ToKubeVirt(s, convert.Owner{}, convert.Kubernetes{}); notes.Problems.None() {
		all = append(all, "kubevirt")
	}
	return all
}

func TestATemplateRunsWhereItSaysAndKeepsTheRules(t *testing.T) {
	t.Parallel()
	rules, err := policy.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tmpl := range template.List() {
		names = append(names, tmpl.Name)
		s, raw, err := template.Make(tmpl.Name, template.Values{})
		if err != nil {
			t.Fatalf("%s: %v", tmpl.Name, err)
		}
		if _, warnings, err := spec.Read(raw); err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, %v", tmpl.Name, warnings, err)
		}
		if got := runtimes(s); !slices.Equal(got, tmpl.Runtimes) {
			t.Errorf("%s runs on %v, and says %v", tmpl.Name, got, tmpl.Runtimes)
		}
		if r := rules.Check(policy.Development, s); len(r.Violations) > 0 {
			t.Errorf("%s: %+v", tmpl.Name, r.Violations)
		}
		for _, v := range rules.Check(policy.Production, s).Violations {
			// Whoever uses it knows the others that need the data.
			if !slices.Contains([]string{"image-registry-is-own", "image-is-pinned", "has-an-owner", "peers-are-named"}, v.ID) {
				t.Errorf("%s: %+v", tmpl.Name, v)
			}
		}
	}
	want := []string{"web-app", "rest-api", "database", "cache", "worker", "cron-job", "ml-training", "microservice"}
	if !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
}

func TestValuesAreFilledIn(t *testing.T) {
	t.Parallel()
	all := template.Values{
		WorkloadName: "shop", Owner: "ann@example.com", Project: "store", Registry: "registry.example.com:5000", CPU: "2",
		Memory: "4Gi", Port: 9000, Replicas: 3,
	}
	s, _, err := template.Make("web-app", all)
	if err != nil {
		t.Fatal(err)
	}
	if s.Metadata.Name != "shop" || s.Metadata.Owner != all.Owner || s.Metadata.Project != "store" ||
		s.Image.Registry != all.Registry || s.Requirements.CPU != 2000 || s.Requirements.Memory != 4<<30 ||
		s.Resources.Memory != 8<<30 || s.Scaling.Replicas != 3 || s.Network.Ports[0].Port != 9000 ||
		s.Health.Ready.HTTP.Port != 9000 || s.Health.Live.TCP != 9000 || s.Network.Ports[0].Publish != 8080 {
		t.Errorf("%+v", s)
	}
	if s, _, err = template.Make("microservice", template.Values{Replicas: 4}); err != nil || s.Scaling.Min != 4 || s.Scaling.Max != 6 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, _, err = template.Make("cron-job", template.Values{Memory: "1Mi"}); err != nil || s.Resources.Memory != 2<<20 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestAValueThatIsNotValidIsTheFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of     string
		values template.Values
	}{
		"workload_name": {"web-app", template.Values{WorkloadName: "Not a name"}},
		"owner":         {"web-app", template.Values{Owner: "a\nb"}},
		"project":       {"web-app", template.Values{Project: "-"}},
		"registry":      {"web-app", template.Values{Registry: "https://x"}},
		"cpu":           {"web-app", template.Values{CPU: "lots"}},
		"memory":        {"web-app", template.Values{Memory: "lots"}},
		"port":          {"web-app", template.Values{Port: 70000}},
		"replicas":      {"web-app", template.Values{Replicas: 5000}},
	} {
		_, _, err := template.Make(c.of, c.values)
		if !fault.Is(err, fault.Invalid) || fault.From(err).Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	for of, v := range map[string]template.Values{"cron-job": {Replicas: 2}, "microservice": {Replicas: 7}} {
		if _, _, err := template.Make(of, v); fault.From(err).Field != "replicas" {
			t.Errorf("%s: %v", of, err)
		}
	}
	if _, _, err := template.Make("../web-app", template.Values{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
}
