package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	edgeapi "github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/kit/image"
	"github.com/mainstay-infra/mainstay/kit/podman"
)

// Labels of the containers: the agent and the deployment that a container belongs to, and the
// digest of its specification.
const (
	labelAgent      = "mainstay.agent"
	labelDeployment = "mainstay.deployment"
	labelDigest     = "mainstay.digest"
)

// digest identifies a version of a deployment by everything that determines its container. Two
// revisions with the same content have the same digest, so going back to a version that still runs
// changes nothing.
func digest(d edgeapi.AgentDeployment) string {
	raw, err := json.Marshal([]any{d.Image, d.Version, d.Env, d.Ports, d.Restart, d.Health})
	if err != nil {
		panic(err) // plain values always encode
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// containerName returns a name that is unique on the machine, since two agents may run deployments
// with the same name.
func containerName(instance string, d edgeapi.AgentDeployment) string {
	return "mainstay-" + d.Name + "-" + instance[:min(8, len(instance))] + "-" + digest(d)
}

// containerSpec returns the specification of a deployment's container.
func containerSpec(instance string, d edgeapi.AgentDeployment) podman.Spec {
	spec := podman.Spec{
		Name: containerName(instance, d), Image: d.Image, Env: d.Env,
		Labels:        map[string]string{labelAgent: instance, labelDeployment: d.Id, labelDigest: digest(d)},
		RestartPolicy: strings.ReplaceAll(string(d.Restart), "_", "-"),
	}
	for _, p := range d.Ports {
		port := podman.PortMapping{ContainerPort: uint16(p.ContainerPort), Protocol: "tcp"}
		if p.HostPort != nil {
			port.HostPort = uint16(*p.HostPort)
		}
		if p.Protocol != nil {
			port.Protocol = string(*p.Protocol)
		}
		spec.Ports = append(spec.Ports, port)
	}
	if h := d.Health; h != nil && len(h.Command) > 0 {
		spec.Health = &podman.HealthConfig{
			Test:    append([]string{"CMD"}, h.Command...),
			Timeout: check(d).timeout,
			Retries: check(d).retries,
		}
	}
	return spec
}

// healthCheck is a deployment's health check with its defaults (api/edge/openapi.yaml).
type healthCheck struct {
	interval, timeout, startPeriod time.Duration
	retries                        int
}

func check(d edgeapi.AgentDeployment) healthCheck {
	h := healthCheck{interval: 10 * time.Second, timeout: 5 * time.Second, retries: 3}
	seconds := func(to *time.Duration, from *int) {
		if from != nil {
			*to = time.Duration(*from) * time.Second
		}
	}
	seconds(&h.interval, d.Health.IntervalSeconds)
	seconds(&h.timeout, d.Health.TimeoutSeconds)
	seconds(&h.startPeriod, d.Health.StartPeriodSeconds)
	if d.Health.Retries != nil {
		h.retries = *d.Health.Retries
	}
	return h
}

// allowed reports whether the control plane has allowed the deployment and the packs allow its
// image. packs must be all packs that apply to the site; if none is enabled, they allow every
// image.
func allowed(d edgeapi.AgentDeployment, packs []edgeapi.PolicyPack) bool {
	ref, err := image.Parse("image", d.Image)
	if err != nil || !d.Allowed {
		return false
	}
	binding := 0
	for _, p := range packs {
		if !p.Enabled {
			continue
		}
		if ref.Allowed(p.AllowedImages) {
			return true
		}
		binding++
	}
	return binding == 0
}

// maxMessage is the maximum length of a message to the control plane, in bytes.
const maxMessage = 1000

// oneLine converts any text, such as a container's last output, to a message: one line of valid
// UTF-8 without control characters. It keeps only the end of a long text.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(strings.ReplaceAll(strings.TrimSpace(text), "\n", " | "), "?"))
	if len(text) <= maxMessage {
		return text
	}
	text = text[len(text)-maxMessage+3:]
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	return "…" + text
}
