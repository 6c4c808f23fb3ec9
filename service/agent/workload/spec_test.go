package workload

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
)

func deployment() edgeapi.AgentDeployment {
	return edgeapi.AgentDeployment{
		Id:           "d1",
		Name:         "web",
		Image:        "ghcr.io/acme/web:1",
		Version:      "1",
		Allowed:      true,
		DesiredState: "running",
		Env:          edgeapi.Env{"A": "b"},
		Restart:      "on_failure",
		PullPolicy:   "missing",
		Revision:     1,
	}
}

func TestTheDigestChangesWithWhatTheContainerIsMadeFromAndNothingElse(t *testing.T) {
	t.Parallel()
	same, other := []func(*edgeapi.AgentDeployment){
		func(d *edgeapi.AgentDeployment) { d.Revision = 9 },
		func(d *edgeapi.AgentDeployment) { d.Status, d.Message = "failed", "x" },
		func(d *edgeapi.AgentDeployment) { d.DesiredState = "stopped" },
		func(d *edgeapi.AgentDeployment) { d.PullPolicy = "always" },
	}, []func(*edgeapi.AgentDeployment){
		func(d *edgeapi.AgentDeployment) { d.Image = "ghcr.io/acme/web:2" },
		func(d *edgeapi.AgentDeployment) { d.Version = "2" },
		func(d *edgeapi.AgentDeployment) { d.Env = edgeapi.Env{"A": "c"} },
		func(d *edgeapi.AgentDeployment) { d.Ports = []edgeapi.Port{{ContainerPort: 80}} },
		func(d *edgeapi.AgentDeployment) { d.Restart = "no" },
		func(d *edgeapi.AgentDeployment) { d.Health = &edgeapi.HealthCheck{Command: []string{"x"}} },
	}
	for i, change := range same {
		d := deployment()
		if change(&d); digest(d) != digest(deployment()) {
			t.Errorf("change %d makes another container", i)
		}
	}
	for i, change := range other {
		d := deployment()
		if change(&d); digest(d) == digest(deployment()) {
			t.Errorf("change %d makes no other container", i)
		}
	}
}

func TestPoliciesDecideWhatMayRun(t *testing.T) {
	t.Parallel()
	pack := func(enabled bool, images ...string) edgeapi.PolicyPack {
		return edgeapi.PolicyPack{Enabled: enabled, AllowedImages: images}
	}
	for _, tt := range []struct {
		name    string
		allowed bool
		packs   []edgeapi.PolicyPack
		want    bool
	}{
		{"no pack", true, nil, true},
		{"a disabled pack", true, []edgeapi.PolicyPack{pack(false)}, true},
		{"an empty pack", true, []edgeapi.PolicyPack{pack(true)}, false},
		{"one of two allows", true, []edgeapi.PolicyPack{pack(true, "nginx"), pack(true, "ghcr.io/acme/*")}, true},
		{"none allows", true, []edgeapi.PolicyPack{pack(true, "nginx")}, false},
		{"the control plane does not", false, nil, false},
	} {
		d := deployment()
		d.Allowed = tt.allowed
		if got := allowed(d, tt.packs); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
	if d := deployment(); func() bool { d.Image = "NO IMAGE"; return allowed(d, nil) }() {
		t.Error("what is not an image may run")
	}
}

func TestAContainerIsMadeAsTheDeploymentSays(t *testing.T) {
	t.Parallel()
	d := deployment()
	host, udp := 8080, edgeapi.PortProtocol("udp")
	d.Ports = []edgeapi.Port{{ContainerPort: 80, HostPort: &host}, {ContainerPort: 53, Protocol: &udp}}
	retries := 7
	d.Health = &edgeapi.HealthCheck{Command: []string{"/check", "it"}, Retries: &retries}
	s := containerSpec("0123456789", d)
	if s.RestartPolicy != "on-failure" || s.Ports[0].HostPort != 8080 || s.Ports[0].Protocol != "tcp" || s.Ports[1].Protocol != "udp" || s.Ports[1].HostPort != 0 ||
		strings.Join(s.Health.Test, " ") != "CMD /check it" || s.Health.Retries != 7 || s.Health.Interval != 0 || s.Env["A"] != "b" ||
		s.Labels[labelDeployment] != "d1" ||
		!strings.HasPrefix(s.Name, "mainstay-web-01234567-") {
		t.Errorf("%+v", s)
	}
}

func FuzzAMessageIsOneLineOfBoundedLength(f *testing.F) {
	f.Add("one\ntwo\x00\x1b[31m")
	f.Add(strings.Repeat("ü", 600))
	f.Add("\xff\xfe")
	f.Fuzz(func(t *testing.T, text string) {
		got := oneLine(text)
		if len(got) > maxMessage || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
			t.Errorf("%q became %q", text, got)
		}
	})
}
