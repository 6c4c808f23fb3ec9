package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/mainstay-infra/mainstay/kit/podman"
	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

// Podman is what a conversion needs to know of a Podman.
type Podman struct {
	Image   string // the image to run, instead of the document's: pinned, or built
	Network string // the bridge network of all workloads
	// Keys are the keys of the orchestrator's secrets, by their names.
	Keys map[string][]string
}

// PodmanContainers are what a workload is in Podman.
type PodmanContainers struct {
	Volumes    []string          // names of volumes to make
	Files      map[string]string // contents of secrets that hold files of configuration, by their names
	Secrets    map[string]KeyOf  // secrets that hold a key of one of the orchestrator's, by their names
	Containers []podman.Spec     // one for each instance
}

// KeyOf is a key of a secret of the orchestrator.
type KeyOf struct{ Secret, Key string }

// LabelInstance is the number of an instance, from 1.
const LabelInstance = "mainstay.io/instance"

// ToPodman returns the containers of a workload. Those of a CronJob are for one run.
func ToPodman(s *spec.Spec, o Owner, p Podman) (*PodmanContainers, *Notes) {
	c := &toPodman{s: s, owner: o, p: p, notes: &Notes{}, out: &PodmanContainers{
		Files: map[string]string{}, Secrets: map[string]KeyOf{},
	}}
	c.refuse()
	for i := range c.instances() {
		c.out.Containers = append(c.out.Containers, c.container(i+1))
	}
	return c.out, c.notes
}

type toPodman struct {
	s     *spec.Spec
	owner Owner
	p     Podman
	notes *Notes
	out   *PodmanContainers
}

// refuse tells what Podman cannot do, and what it does in another way.
func (c *toPodman) refuse() {
	s, problem, warn := c.s, c.notes.Problems.Add, c.notes.Warnings.Add
	for i := range s.Network.Ingress {
		problem("network.ingress["+strconv.Itoa(i)+"]", "Podman has no ingress; use network.ports with publish")
	}
	if len(s.Network.AllowFrom) > 0 {
		problem("network.allowFrom", "Podman lets all workloads of a host connect to each other")
	}
	if len(s.Network.AllowTo) > 0 {
		problem("network.allowTo", "Podman lets workloads connect to everything")
	}
	if s.Requirements.GPUs > 0 {
		problem("requirements.gpus", "Podman does not give out GPUs by number")
	}
	if s.Security.NonRoot && s.Security.User == 0 {
		problem("security.user", "is required with nonRoot, since Podman does not look at the user of the image")
	}
	if s.Security.Group > 0 && s.Security.User == 0 {
		problem("security.user", "is required with group")
	}
	if s.Requirements.Storage > 0 {
		warn("requirements.storage", "Podman reserves no disk; what the host has free is looked at when a place is chosen")
	}
	if s.Scaling.Max > 0 {
		warn("scaling", "Podman does not scale by use; %d instances run", c.instances())
	}
}

func (c *toPodman) instances() int {
	switch {
	case c.s.Kind != spec.Workload:
		return 1
	case c.s.Scaling.Max > 0:
		return c.s.Scaling.Min
	}
	return c.s.Scaling.Replicas
}

func (c *toPodman) container(number int) podman.Spec {
	s := c.s
	name := part(s.Metadata.Name, strconv.Itoa(number))
	stop := uint(seconds(s.Restart.Stop)) //nolint:gosec // it is at least a second
	out := podman.Spec{
		Name: name, Hostname: name, Image: c.image(), Entrypoint: s.Command, Command: s.Args, Env: s.Env,
		Labels: c.labels(number),
		// The orchestrator starts instances again, also after the host has started, and checks them.
		RestartPolicy:   podman.RestartNo,
		Health:          &podman.HealthConfig{Test: []string{"NONE"}},
		StopTimeout:     &stop,
		CapDrop:         s.Security.DropCapabilities,
		NoNewPrivileges: !s.Security.Escalation,
		ReadOnlyRoot:    s.Security.ReadOnlyRoot,
		Resources:       c.resources(),
		NetNS:           &podman.Namespace{Mode: "bridge"},
		Networks:        map[string]podman.Attached{c.p.Network: {Aliases: []string{s.Metadata.Name}}},
	}
	if s.Security.User > 0 {
		out.User = strconv.Itoa(s.Security.User)
		if s.Security.Group > 0 {
			out.User += ":" + strconv.Itoa(s.Security.Group)
		}
	}
	for _, p := range s.Network.Ports {
		// On loopback and at any port, where the front of the workload finds it.
		out.Ports = append(out.Ports, podman.PortMapping{ContainerPort: p.Port, HostIP: "127.0.0.1", Protocol: p.Protocol})
	}
	c.volumes(&out, number)
	c.files(&out)
	c.secrets(&out)
	return out
}

func (c *toPodman) image() string {
	switch {
	case c.p.Image != "":
		return c.p.Image
	case c.s.Image != nil:
		return imageName(c.s.Image)
	}
	if c.notes.Problems.None() {
		c.notes.Problems.Add("build", "the image is not built yet")
	}
	return ""
}

func (c *toPodman) labels(number int) map[string]string {
	all := map[string]string{}
	maps.Copy(all, c.s.Annotations)
	maps.Copy(all, map[string]string{
		LabelManager: Manager, LabelServer: c.owner.Server, LabelWorkload: c.owner.Workload, LabelName: c.s.Metadata.Name,
		LabelInstance: strconv.Itoa(number),
	})
	if c.s.Metadata.Project != "" {
		all[LabelProject] = c.s.Metadata.Project
	}
	return all
}

// period is the time in which a container may use its share of the processors, in microseconds.
const period = 100_000

func (c *toPodman) resources() *podman.Resources {
	need, most := c.s.Requirements, c.s.Resources
	r := &podman.Resources{}
	if need.CPU > 0 || most.CPU > 0 {
		r.CPU = &podman.CPU{}
		if need.CPU > 0 {
			r.CPU.Shares = max(2, uint64(need.CPU)*1024/1000) // as Kubernetes does
		}
		if most.CPU > 0 {
			r.CPU.Quota, r.CPU.Period = max(1000, int64(most.CPU)*period/1000), period
		}
	}
	if most.Memory > 0 {
		r.Memory = &podman.Memory{Limit: int64(most.Memory)}
	}
	if most.PIDs > 0 {
		r.PIDs = &podman.PIDs{Limit: int64(most.PIDs)}
	}
	if *r == (podman.Resources{}) {
		return nil
	}
	return r
}

func (c *toPodman) volumes(out *podman.Spec, number int) {
	for _, v := range c.s.Persistence.Volumes {
		to := podman.NamedVolume{Dest: v.MountPath}
		if v.ReadOnly {
			to.Options = []string{"ro"}
		}
		switch {
		case v.Ephemeral:
			to.IsAnonymous = true
		case v.Shared:
			to.Name = part(c.s.Metadata.Name, v.Name)
			if number == 1 {
				c.out.Volumes = append(c.out.Volumes, to.Name)
			}
		default:
			to.Name = part(part(c.s.Metadata.Name, v.Name), strconv.Itoa(number))
			c.out.Volumes = append(c.out.Volumes, to.Name)
		}
		out.Volumes = append(out.Volumes, to)
	}
}

// secretName returns the name of a secret in Podman, which has at most 64 characters: parts of different workloads have
// different ones.
func (c *toPodman) secretName(parts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", append([]string{c.owner.Server, c.owner.Workload}, parts...)))
	return "mainstay-" + hex.EncodeToString(sum[:16])
}

// files adds the files of configuration. Podman has no place for them but secrets.
func (c *toPodman) files(out *podman.Spec) {
	for _, m := range c.s.ConfigMaps {
		for _, name := range sortedKeys(m.Data) {
			as := c.secretName("file", m.Name, name)
			c.out.Files[as] = m.Data[name]
			out.Secrets = append(out.Secrets, podman.SecretFile{Source: as, Target: path.Join(m.MountPath, name), Mode: 0o444})
		}
	}
}

func (c *toPodman) secrets(out *podman.Spec) {
	for i, s := range c.s.Secrets {
		keys, known := c.p.Keys[s.Name]
		at := "secrets[" + strconv.Itoa(i) + "]"
		if !known {
			c.missing(at+".name", "no secret has this name")
			continue
		}
		if s.Key != "" {
			if !slices.Contains(keys, s.Key) {
				c.missing(at+".key", "the secret has no key of this name")
				continue
			}
			keys = []string{s.Key}
		}
		for _, key := range keys {
			as := c.secretName("secret", s.Name, key)
			c.out.Secrets[as] = KeyOf{s.Name, key}
			if s.Env != "" {
				if out.SecretEnv == nil {
					out.SecretEnv = map[string]string{}
				}
				out.SecretEnv[s.Env] = as
				continue
			}
			user, group := uint32(c.s.Security.User), uint32(c.s.Security.Group) //nolint:gosec // they are not negative
			out.Secrets = append(out.Secrets, podman.SecretFile{
				Source: as, Target: path.Join(s.MountPath, key), UID: user, GID: group, Mode: 0o400,
			})
		}
	}
}

// missing adds a problem, once for all instances.
func (c *toPodman) missing(at, text string) {
	if len(c.out.Containers) == 0 {
		c.notes.Problems.Add(at, "%s", text)
	}
}
