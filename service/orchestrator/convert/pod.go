package convert

import (
	"slices"
	"strconv"
	"time"

	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

// restartedAt is the annotation that kubectl rollout restart sets, too.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// template returns that of the workload's pods.
func (c *kubernetes) template() Object {
	container := Object{"name": "main", "image": c.image(), "resources": c.resources()}
	if len(c.s.Command) > 0 {
		container["command"] = list(c.s.Command)
	}
	if len(c.s.Args) > 0 {
		container["args"] = list(c.s.Args)
	}
	if env := c.env(); len(env) > 0 {
		container["env"] = env
	}
	if ports := c.ports(); len(ports) > 0 {
		container["ports"] = ports
	}
	for key, check := range map[string]*spec.Check{
		"readinessProbe": c.s.Health.Ready, "livenessProbe": c.s.Health.Live, "startupProbe": c.s.Health.Startup,
	} {
		if check != nil {
			container[key] = probe(check)
		}
	}
	volumes, mounts := c.volumes()
	if len(mounts) > 0 {
		container["volumeMounts"] = mounts
	}
	security, forAll := c.security()
	container["securityContext"] = security
	pod := Object{
		"containers": []any{container}, "restartPolicy": c.restartPolicy(), "automountServiceAccountToken": false,
		"enableServiceLinks": false, "terminationGracePeriodSeconds": seconds(c.s.Restart.Stop),
	}
	if len(forAll) > 0 {
		pod["securityContext"] = forAll
	}
	if len(volumes) > 0 {
		pod["volumes"] = volumes
	}
	if c.k.PullSecret != "" {
		pod["imagePullSecrets"] = []any{Object{"name": c.k.PullSecret}}
	}
	if c.s.Kind == spec.Workload && max(c.s.Scaling.Replicas, c.s.Scaling.Max) > 1 {
		pod["topologySpreadConstraints"] = []any{Object{ // on several nodes, if there are several
			"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
			"labelSelector": Object{"matchLabels": c.selector()},
		}}
	}
	metadata := Object{"labels": c.labels()}
	if annotations := c.annotations(); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return Object{"metadata": metadata, "spec": pod}
}

func (c *kubernetes) image() string {
	switch {
	case c.k.Image != "":
		return c.k.Image
	case c.s.Image != nil:
		return imageName(c.s.Image)
	}
	c.notes.Problems.Add("build", "the image is not built yet")
	return ""
}

// annotations are those of the pods.
func (c *kubernetes) annotations() Object {
	all := texts(c.s.Annotations)
	if m := c.s.Monitoring.Metrics; m != nil { // what Prometheus is usually told to look for
		all["prometheus.io/scrape"], all["prometheus.io/path"] = "true", m.Path
		all["prometheus.io/port"] = strconv.Itoa(int(m.Port))
	}
	if c.k.Restarted != "" {
		all[restartedAt] = c.k.Restarted
	}
	return all
}

func (c *kubernetes) restartPolicy() string {
	switch {
	case c.s.Kind != spec.Workload:
		return "Never" // the Job makes another pod, so that the logs of the last one stay
	case c.s.Restart.Policy == "never":
		c.notes.Warnings.Add("restart.policy", "Kubernetes starts instances of a Workload again in any case")
	}
	return "Always"
}

func (c *kubernetes) resources() Object {
	requests, limits := Object{}, Object{}
	need, most := c.s.Requirements, c.s.Resources
	if need.CPU > 0 {
		requests["cpu"] = need.CPU.String()
	}
	if need.Memory > 0 {
		requests["memory"] = need.Memory.String()
	}
	if need.Storage > 0 {
		requests["ephemeral-storage"] = need.Storage.String()
	}
	if need.GPUs > 0 {
		limits["nvidia.com/gpu"] = strconv.Itoa(need.GPUs)
	}
	if most.CPU > 0 {
		limits["cpu"] = most.CPU.String()
	}
	if most.Memory > 0 {
		limits["memory"] = most.Memory.String()
	}
	if most.PIDs > 0 {
		c.notes.Warnings.Add("resources.pids", "the limit in Kubernetes is that of the node's kubelet")
	}
	all := Object{}
	if len(requests) > 0 {
		all["requests"] = requests
	}
	if len(limits) > 0 {
		all["limits"] = limits
	}
	return all
}

// env returns the variables in the order of their names, so that equal workloads have equal pods.
func (c *kubernetes) env() (all []any) {
	for _, name := range sortedKeys(c.s.Env) {
		// $(NAME) in a value is a reference for Kubernetes, and a text in the document.
		all = append(all, Object{"name": name, "value": escapeReferences(c.s.Env[name])})
	}
	for _, s := range c.s.Secrets {
		if s.Env != "" {
			all = append(all, Object{"name": s.Env, "valueFrom": Object{"secretKeyRef": Object{
				"name": SecretName(c.name(), s.Name), "key": s.Key,
			}}})
		}
	}
	return all
}

// SecretName returns the name of the Secret that has a workload's copy of a secret.
func SecretName(workload, secret string) string { return part(workload, "secret--"+secret) }

func (c *kubernetes) ports() (all []any) {
	for i, p := range c.s.Network.Ports {
		all = append(all, Object{"name": p.Name, "containerPort": p.Port, "protocol": protocol(p)})
		if p.Publish > 0 {
			c.notes.Warnings.Add("network.ports["+strconv.Itoa(i)+"].publish",
				"nodes of Kubernetes do not serve the port; use network.ingress")
		}
	}
	return all
}

func probe(c *spec.Check) Object {
	o := Object{
		"periodSeconds": seconds(c.Interval), "timeoutSeconds": seconds(c.Timeout), "failureThreshold": c.Failures,
	}
	if c.Delay > 0 {
		o["initialDelaySeconds"] = seconds(c.Delay)
	}
	switch {
	case c.HTTP != nil:
		o["httpGet"] = Object{"path": c.HTTP.Path, "port": c.HTTP.Port}
	case c.TCP > 0:
		o["tcpSocket"] = Object{"port": c.TCP}
	default:
		o["exec"] = Object{"command": list(c.Exec)}
	}
	return o
}

// volumes returns those of the pods, and where their container has them.
func (c *kubernetes) volumes() (volumes, mounts []any) {
	add := func(name, path string, readOnly bool, source Object) {
		mount := Object{"name": name, "mountPath": path}
		if readOnly {
			mount["readOnly"] = true
		}
		mounts = append(mounts, mount)
		if source != nil {
			source["name"] = name
			volumes = append(volumes, source)
		}
	}
	for _, v := range c.s.Persistence.Volumes {
		switch {
		case v.Ephemeral:
			add(v.Name, v.MountPath, false, Object{"emptyDir": Object{"sizeLimit": v.Size.String()}})
		case c.stateful() && !v.Shared:
			add(v.Name, v.MountPath, v.ReadOnly, nil) // of volumeClaimTemplates
		default:
			add(v.Name, v.MountPath, v.ReadOnly, Object{"persistentVolumeClaim": Object{"claimName": part(c.name(), v.Name)}})
		}
	}
	for _, m := range c.s.ConfigMaps {
		add(part("config", m.Name), m.MountPath, true, Object{"configMap": Object{"name": part(c.name(), m.Name)}})
	}
	for _, folder := range c.secretFolders() {
		source := Object{"secretName": SecretName(c.name(), folder.secret), "defaultMode": 0o440}
		if len(folder.keys) > 0 {
			var items []any
			for _, key := range folder.keys {
				items = append(items, Object{"key": key, "path": key})
			}
			source["items"] = items
		}
		add("secret--"+strconv.Itoa(folder.number), folder.path, true, Object{"secret": source})
	}
	return volumes, mounts
}

// secretFolder is a folder with keys of a secret; none: all.
type secretFolder struct {
	secret, path string
	keys         []string
	number       int
}

func (c *kubernetes) secretFolders() (all []*secretFolder) {
	for _, s := range c.s.Secrets {
		if s.MountPath == "" {
			continue
		}
		at := slices.IndexFunc(all, func(f *secretFolder) bool { return f.path == s.MountPath })
		if at < 0 {
			at = len(all)
			all = append(all, &secretFolder{secret: s.Name, path: s.MountPath, number: at})
		}
		if s.Key != "" {
			all[at].keys = append(all[at].keys, s.Key)
		}
	}
	return all
}

// security returns what the container's processes may do, and what holds for the pod.
func (c *kubernetes) security() (container, pod Object) {
	s := c.s.Security
	container, pod = Object{"allowPrivilegeEscalation": s.Escalation}, Object{}
	if s.ReadOnlyRoot {
		container["readOnlyRootFilesystem"] = true
	}
	if len(s.DropCapabilities) > 0 {
		container["capabilities"] = Object{"drop": list(s.DropCapabilities)}
	}
	if s.User > 0 {
		container["runAsUser"] = s.User
	}
	if s.Group > 0 {
		container["runAsGroup"] = s.Group
		pod["fsGroup"] = s.Group // volumes and secrets are readable for it
	}
	if s.NonRoot {
		container["runAsNonRoot"] = true
	}
	pod["seccompProfile"] = Object{"type": "RuntimeDefault"}
	return container, pod
}

func seconds(d spec.Duration) int { return int((time.Duration(d) + time.Second - 1) / time.Second) }

func list(texts []string) []any {
	all := make([]any, len(texts))
	for i, t := range texts {
		all[i] = t
	}
	return all
}
