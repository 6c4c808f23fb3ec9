package convert

import (
	"cmp"
	"maps"
	"strings"

	"github.com/mainstay-infra/mainstay/service/orchestrator/spec"
)

// Object is an object of Kubernetes, as its API has it.
type Object = map[string]any

// Kubernetes is what a conversion needs to know of a cluster.
type Kubernetes struct {
	Namespace string // for workloads that name none
	Image     string // the image to run, instead of the document's: pinned, or built
	// PullSecret is the name of the secret with the credentials of its registry; empty: it needs none.
	PullSecret string
	// Restarted is when the pods were last started anew although nothing else has changed, in RFC 3339; empty: never.
	Restarted string
}

// ToKubernetes returns the objects of a workload, in the order in which they are made.
func ToKubernetes(s *spec.Spec, o Owner, k Kubernetes) ([]Object, *Notes) {
	c := &kubernetes{s: s, owner: o, k: k, notes: &Notes{}}
	c.configMaps()
	c.claims()
	c.services()
	c.controller()
	c.autoscaler()
	c.disruptions()
	c.ingress()
	c.policy()
	return c.objects, c.notes
}

type kubernetes struct {
	s       *spec.Spec
	owner   Owner
	k       Kubernetes
	notes   *Notes
	objects []Object
}

// fixed are the labels that a workload has as long as it exists.
func (c *kubernetes) fixed() Object {
	return Object{
		LabelManager: Manager, LabelServer: c.owner.Server, LabelWorkload: c.owner.Workload, LabelName: c.name(),
	}
}

// labels are those of all objects of the workload.
func (c *kubernetes) labels() Object {
	all := c.fixed()
	if c.s.Metadata.Project != "" {
		all[LabelProject] = c.s.Metadata.Project
	}
	return all
}

// selector are the labels of the workload's pods that never change.
func (c *kubernetes) selector() Object {
	return Object{LabelServer: c.owner.Server, LabelName: c.name()}
}

func (c *kubernetes) name() string { return c.s.Metadata.Name }

func (c *kubernetes) namespace() string { return cmp.Or(c.s.Runtime.Namespace, c.k.Namespace) }

// add adds an object.
func (c *kubernetes) add(apiVersion, kind, name string, rest Object) {
	metadata := Object{"name": name, "namespace": c.namespace(), "labels": c.labels()}
	if len(c.s.Annotations) > 0 {
		metadata["annotations"] = texts(c.s.Annotations)
	}
	o := Object{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	maps.Copy(o, rest)
	c.objects = append(c.objects, o)
}

// texts returns a map as objects have it.
func texts(m map[string]string) Object {
	o := Object{}
	for key, value := range m {
		o[key] = value
	}
	return o
}

func (c *kubernetes) configMaps() {
	for _, m := range c.s.ConfigMaps {
		c.add("v1", "ConfigMap", part(c.name(), m.Name), Object{"data": texts(m.Data)})
	}
}

// stateful reports whether each instance has volumes of its own.
func (c *kubernetes) stateful() bool {
	for _, v := range c.s.Persistence.Volumes {
		if !v.Shared && !v.Ephemeral && c.s.Kind == spec.Workload {
			return true
		}
	}
	return false
}

// claims adds the claims that all instances share. Those of each instance are made by its StatefulSet.
func (c *kubernetes) claims() {
	for _, v := range c.s.Persistence.Volumes {
		if v.Ephemeral || !v.Shared && c.stateful() {
			continue
		}
		mode := "ReadWriteOnce"
		if v.Shared {
			mode = "ReadWriteMany"
		}
		c.add("v1", "PersistentVolumeClaim", part(c.name(), v.Name), Object{"spec": c.claim(&v, mode)})
	}
}

func (c *kubernetes) claim(v *spec.Volume, mode string) Object {
	o := Object{"accessModes": []any{mode}, "resources": Object{"requests": Object{"storage": v.Size.String()}}}
	if c.s.Persistence.Class != "" {
		o["storageClassName"] = c.s.Persistence.Class
	}
	return o
}

// controller adds what makes the pods.
func (c *kubernetes) controller() {
	name, template := c.name(), c.template()
	switch {
	case c.s.Kind == spec.Job:
		c.add("batch/v1", "Job", name, Object{"spec": c.job(template)})
	case c.s.Kind == spec.CronJob:
		c.cronJob(template)
	case c.stateful():
		var claims []any
		for _, v := range c.s.Persistence.Volumes {
			if !v.Shared && !v.Ephemeral {
				claims = append(claims, Object{
					// A StatefulSet cannot change them.
					"metadata": Object{"name": v.Name, "labels": c.fixed()}, "spec": c.claim(&v, "ReadWriteOnce"),
				})
			}
		}
		c.add("apps/v1", "StatefulSet", name, Object{"spec": c.replicas(Object{
			"serviceName": part(name, "instances"), "selector": Object{"matchLabels": c.selector()}, "template": template,
			"volumeClaimTemplates": claims, "podManagementPolicy": "Parallel",
			"persistentVolumeClaimRetentionPolicy": Object{"whenDeleted": "Retain", "whenScaled": "Retain"},
		})})
	default:
		c.add("apps/v1", "Deployment", name, Object{"spec": c.replicas(Object{
			"selector": Object{"matchLabels": c.selector()}, "template": template,
			"strategy": Object{"type": "RollingUpdate", "rollingUpdate": Object{"maxUnavailable": 0, "maxSurge": 1}},
		})})
	}
}

// replicas sets how many pods there are, unless an autoscaler does.
func (c *kubernetes) replicas(of Object) Object {
	if c.s.Scaling.Max == 0 {
		of["replicas"] = c.s.Scaling.Replicas
	}
	return of
}

func (c *kubernetes) job(template Object) Object {
	retries := c.s.Restart.Retries
	if c.s.Restart.Policy == "never" {
		retries = 0
	}
	return Object{"template": template, "backoffLimit": retries}
}

func (c *kubernetes) cronJob(template Object) {
	s := c.s.Schedule
	policies := map[string]string{"forbid": "Forbid", "allow": "Allow", "replace": "Replace"}
	o := Object{
		"schedule": s.Cron, "timeZone": s.TimeZone, "concurrencyPolicy": policies[s.Overlap],
		"successfulJobsHistoryLimit": s.Keep, "failedJobsHistoryLimit": s.Keep,
		"jobTemplate": Object{"metadata": Object{"labels": c.labels()}, "spec": c.job(template)},
	}
	if s.Missed == "skip" {
		o["startingDeadlineSeconds"] = 60
	}
	c.add("batch/v1", "CronJob", c.name(), Object{"spec": o})
}

func (c *kubernetes) kindOfController() string {
	if c.stateful() {
		return "StatefulSet"
	}
	return "Deployment"
}

func (c *kubernetes) autoscaler() {
	s := c.s.Scaling
	if s.Max == 0 {
		return
	}
	var metrics []any
	for _, of := range []struct {
		resource string
		target   int
	}{{"cpu", s.TargetCPU}, {"memory", s.TargetMemory}} {
		if of.target > 0 {
			metrics = append(metrics, Object{"type": "Resource", "resource": Object{
				"name": of.resource, "target": Object{"type": "Utilization", "averageUtilization": of.target},
			}})
		}
	}
	c.add("autoscaling/v2", "HorizontalPodAutoscaler", c.name(), Object{"spec": Object{
		"scaleTargetRef": Object{"apiVersion": "apps/v1", "kind": c.kindOfController(), "name": c.name()},
		"minReplicas":    s.Min, "maxReplicas": s.Max, "metrics": metrics,
	}})
}

// disruptions keeps all but one of several pods while nodes are emptied.
func (c *kubernetes) disruptions() {
	if c.s.Kind != spec.Workload || max(c.s.Scaling.Replicas, c.s.Scaling.Min) < 2 {
		return
	}
	c.add("policy/v1", "PodDisruptionBudget", c.name(), Object{"spec": Object{
		"maxUnavailable": 1, "selector": Object{"matchLabels": c.selector()},
	}})
}

// imageName returns the name of an image, as runtimes take it.
func imageName(i *spec.Image) string {
	var b strings.Builder
	b.WriteString(i.Registry + "/" + i.Repository)
	if i.Tag != "" {
		b.WriteString(":" + i.Tag)
	}
	if i.Digest != "" {
		b.WriteString("@" + i.Digest)
	}
	return b.String()
}
