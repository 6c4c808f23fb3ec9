package kubetest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/kube"
	"github.com/mainstay-infra/mainstay/kit/kubetest"
)

type object = map[string]any

var (
	deployments = kube.Resource{Group: "apps", Version: "v1", Kind: "Deployment", Plural: "deployments"}
	jobs        = kube.Resource{Group: "batch", Version: "v1", Kind: "Job", Plural: "jobs"}
	nodes       = kube.Resource{Version: "v1", Kind: "Node", Plural: "nodes"}
	vms         = kube.Resource{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachine", Plural: "virtualmachines"}
	vmis        = kube.Resource{
		Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance", Plural: "virtualmachineinstances",
	}
)

type pod struct {
	Meta kube.Meta `json:"metadata"`
	Spec struct {
		NodeName string
	}
	Status struct {
		Phase      string
		PodIP      string
		Containers []struct {
			Ready bool
			State map[string]struct {
				Reason   string
				ExitCode int
			}
		} `json:"containerStatuses"`
		StartTime  time.Time
		Conditions []condition
	}
}

type condition struct {
	Type, Status       string
	LastTransitionTime time.Time
}

func (p *pod) condition(kind string) condition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return condition{}
}

func (p *pod) ready() bool { return p.condition("Ready").Status == "True" }

// template returns that of pods with a container, annotations of devcluster and what else their spec has.
func template(app string, notes object, spec object) object {
	annotations := object{}
	for name, value := range notes {
		annotations["devcluster.mainstay.io/"+name] = value
	}
	whole := object{"containers": []any{object{"name": "main", "image": "example.com/app:1"}}}
	for name, value := range spec {
		whole[name] = value
	}
	return object{"metadata": object{"labels": object{"app": app}, "annotations": annotations}, "spec": whole}
}

// pods returns those of an app.
func pods(t *testing.T, c *kubetest.Cluster, ns, app string) (all []*pod) {
	t.Helper()
	if err := kube.Each(t.Context(), c.Client, kube.Pods, ns, kube.Query{Labels: "app=" + app}, func(p *pod) error {
		all = append(all, p)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func deploy(t *testing.T, c *kubetest.Cluster, ns, app string, replicas int, of object) {
	t.Helper()
	kubetest.Create(t, c, deployments, ns, &object{"metadata": object{"name": app}, "spec": object{
		"replicas": replicas, "selector": object{"matchLabels": object{"app": app}}, "template": of,
	}})
}

// number returns a number in the status of an object, 0 without it.
func number(o *object, field string) int {
	if o == nil {
		return 0
	}
	status, _ := (*o)["status"].(object)
	n, _ := status[field].(float64)
	return int(n)
}

func TestPodsGoThroughTheirStatesOnFakeNodes(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, "--nodes=3", "--gpus=2", "--kubevirt")
	t.Run("a deployment becomes ready", func(t *testing.T) {
		t.Parallel()
		ns := c.Namespace(t)
		deploy(t, c, ns, "web", 6, template("web", object{"logs": "one\ntwo\nthree\n"}, nil))
		kubetest.Await(t, c, deployments, ns, "web", func(d *object) bool { return number(d, "readyReplicas") == 6 })
		addresses, on := map[string]bool{}, map[string]bool{}
		for _, p := range pods(t, c, ns, "web") {
			addresses[p.Status.PodIP], on[p.Spec.NodeName] = true, true
		}
		if len(addresses) != 6 || addresses[""] || len(on) != 3 {
			t.Errorf("addresses %v on %v", addresses, on)
		}
		for args, want := range map[string]string{"logs deploy/web": "one\ntwo\nthree\n", "logs deploy/web --tail=1": "three\n"} {
			out, err := kubectl(t, c, ns, strings.Fields(args)...)
			if err != nil || out != want {
				t.Errorf("kubectl %s: %q, %v", args, out, err)
			}
		}
		if out, err := kubectl(t, c, ns, "exec", "deploy/web", "--", "ls"); err == nil || !strings.Contains(out, "nothing runs on the fake node") {
			t.Errorf("kubectl exec: %q, %v", out, err)
		}
		p := pods(t, c, ns, "web")[0]
		if err := kube.Delete(t.Context(), c.Client, kube.Pods, ns, p.Meta.Name, p.Meta.UID); err != nil {
			t.Fatal(err)
		}
		kubetest.Await(t, c, kube.Pods, ns, p.Meta.Name, func(now *pod) bool { return now == nil })
		kubetest.Await(t, c, deployments, ns, "web", func(d *object) bool { return number(d, "readyReplicas") == 6 })
	})
	t.Run("annotations choose what becomes of a pod", func(t *testing.T) {
		t.Parallel()
		ns := c.Namespace(t)
		deploy(t, c, ns, "slow", 1, template("slow", object{"ready-after": "2s"}, nil))
		deploy(t, c, ns, "stuck", 1, template("stuck", object{"waits-for": "ImagePullBackOff"}, nil))
		kubetest.Await(t, c, deployments, ns, "slow", func(d *object) bool { return number(d, "readyReplicas") == 1 })
		if p := pods(t, c, ns, "slow")[0]; p.condition("Ready").LastTransitionTime.Sub(p.Status.StartTime) < 2*time.Second {
			t.Errorf("it was ready too soon: %+v", p.Status)
		}
		kubetest.Await(t, c, deployments, ns, "stuck", func(d *object) bool { return number(d, "unavailableReplicas") == 1 })
		name := pods(t, c, ns, "stuck")[0].Meta.Name
		kubetest.Await(t, c, kube.Pods, ns, name, func(p *pod) bool {
			return len(p.Status.Containers) == 1 && p.Status.Containers[0].State["waiting"].Reason == "ImagePullBackOff" &&
				p.Status.Phase == "Pending" && !p.ready()
		})
	})
	t.Run("jobs end", func(t *testing.T) {
		t.Parallel()
		ns := c.Namespace(t)
		for app, code := range map[string]string{"good": "0", "bad": "3"} {
			kubetest.Create(t, c, jobs, ns, &object{"metadata": object{"name": app}, "spec": object{
				"backoffLimit": 0, "template": template(app, object{"exit-code": code, "runs-for": "300ms"}, object{"restartPolicy": "Never"}),
			}})
		}
		kubetest.Await(t, c, jobs, ns, "good", func(j *object) bool { return number(j, "succeeded") == 1 })
		kubetest.Await(t, c, jobs, ns, "bad", func(j *object) bool { return number(j, "failed") == 1 })
		if p := pods(t, c, ns, "bad")[0]; p.Status.Phase != "Failed" || p.Status.Containers[0].State["terminated"].ExitCode != 3 {
			t.Errorf("%+v", p.Status)
		}
	})
	t.Run("GPUs are given out", func(t *testing.T) {
		t.Parallel()
		ns := c.Namespace(t)
		deploy(t, c, ns, "train", 4, template("train", nil, object{"containers": []any{object{
			"name": "main", "image": "example.com/app:1", "resources": object{"limits": object{"nvidia.com/gpu": "2"}},
		}}}))
		kubetest.Await(t, c, deployments, ns, "train", func(d *object) bool { return number(d, "readyReplicas") == 3 })
		without := 0
		for _, p := range pods(t, c, ns, "train") {
			if p.Spec.NodeName == "" {
				without++
			}
		}
		if without != 1 {
			t.Errorf("%d pods wait for a node, of 4 that need 2 GPUs each, on 3 nodes of 2", without)
		}
	})
	t.Run("VMs start and stop", func(t *testing.T) {
		t.Parallel()
		vmLife(t, c, c.Namespace(t))
	})
}

// kubectl runs the one in devcluster.
func kubectl(t *testing.T, c *kubetest.Cluster, ns string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"kubectl", "--kubeconfig", c.Kubeconfig, "--namespace", ns}, args...)
	out, err := exec.CommandContext(t.Context(), kubetest.Program(t), args...).CombinedOutput() //nolint:gosec // the test's own
	text := string(out)
	for line := range strings.Lines(text) { // what it says of its own choice
		if strings.HasPrefix(line, "Found ") || strings.HasPrefix(line, "Defaulted ") {
			text = strings.Replace(text, line, "", 1)
		}
	}
	return text, err
}

type vm struct {
	Meta   kube.Meta `json:"metadata"`
	Spec   object    `json:"spec,omitempty"`
	Status struct {
		Created, Ready  bool
		PrintableStatus string
	} `json:"status,omitzero"`
}

type vmi struct {
	Meta   kube.Meta `json:"metadata"`
	Status struct {
		Phase, NodeName string
		Interfaces      []struct{ IPAddress string }
		Transitions     []struct{ Phase string } `json:"phaseTransitionTimestamps"`
	}
}

func vmLife(t *testing.T, c *kubetest.Cluster, ns string) {
	spec := func(strategy string, notes object) object {
		of := template("desk", notes, nil)
		of["spec"] = object{"domain": object{"memory": object{"guest": "1Gi"}, "devices": object{}}}
		return object{"runStrategy": strategy, "template": of}
	}
	is := func(name, status string) {
		t.Helper()
		kubetest.Await(t, c, vms, ns, name, func(v *vm) bool {
			return v.Status.PrintableStatus == status && v.Status.Ready == (status == "Running")
		})
	}
	strategy := func(name, to string) {
		t.Helper()
		if _, err := kube.Apply(t.Context(), c.Client, vms, ns, name, &vm{
			Meta: kube.Meta{Name: name}, Spec: object{"runStrategy": to, "template": spec(to, nil)["template"]},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kube.Create(t.Context(), c.Client, vms, ns, &object{
		"metadata": object{"name": "wrong"}, "spec": object{"runStrategy": "Always"},
	}); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a template: %v", err)
	}
	kubetest.Create(t, c, vms, ns, &object{"metadata": object{"name": "desk"}, "spec": spec("Halted", nil)})
	is("desk", "Stopped")
	strategy("desk", "Always")
	is("desk", "Running")
	first := kubetest.Get[vmi](t, c, vmis, ns, "desk")
	phases := ""
	for _, at := range first.Status.Transitions {
		phases += at.Phase + " "
	}
	if phases != "Scheduling Scheduled Running " || first.Status.NodeName == "" || len(first.Status.Interfaces) != 1 {
		t.Errorf("%+v", first)
	}
	// The loss of its pod fails the instance, and another one takes its place.
	launchers := pods(t, c, ns, "desk")
	if len(launchers) != 1 || first.Status.Interfaces[0].IPAddress != launchers[0].Status.PodIP {
		t.Fatalf("%+v", launchers)
	}
	if err := kube.Delete(t.Context(), c.Client, kube.Pods, ns, launchers[0].Meta.Name, launchers[0].Meta.UID); err != nil {
		t.Fatal(err)
	}
	kubetest.Await(t, c, vmis, ns, "desk", func(i *vmi) bool {
		return i != nil && i.Meta.UID != first.Meta.UID && i.Status.Phase == "Running"
	})
	strategy("desk", "Halted")
	is("desk", "Stopped")
	if all := pods(t, c, ns, "desk"); len(all) > 0 {
		t.Errorf("its pod stays: %+v", all)
	}
	// One that shuts itself down stays down, or comes back, as its strategy says.
	for name, strategy := range map[string]string{"once": "Once", "again": "RerunOnFailure"} {
		kubetest.Create(t, c, vms, ns, &object{"metadata": object{"name": name}, "spec": spec(strategy, object{"runs-for": "1s"})})
		kubetest.Await(t, c, vmis, ns, name, func(i *vmi) bool { return i != nil && i.Status.Phase == "Succeeded" })
		is(name, "Stopped")
	}
	strategy("desk", "Always")
	is("desk", "Running")
	uid := kubetest.Get[vm](t, c, vms, ns, "desk").Meta.UID
	if err := kube.Delete(t.Context(), c.Client, vms, ns, "desk", uid); err != nil {
		t.Fatal(err)
	}
	kubetest.Await(t, c, vms, ns, "desk", func(v *vm) bool { return v == nil })
	kubetest.Await(t, c, vmis, ns, "desk", func(i *vmi) bool { return i == nil })
}

func TestTheFakeNodesAreThoseOfTheLastStart(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t, "--nodes=2")
	ns := c.Namespace(t)
	deploy(t, c, ns, "web", 4, template("web", nil, nil))
	kubetest.Await(t, c, deployments, ns, "web", func(d *object) bool { return number(d, "readyReplicas") == 4 })
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Run("--nodes=1", "--gpus=1"); err != nil {
		t.Fatal(err)
	}
	kubetest.Await(t, c, nodes, "", "fake-1", func(n *object) bool { return n == nil })
	kubetest.Await(t, c, deployments, ns, "web", func(d *object) bool { return number(d, "readyReplicas") == 4 })
	for _, p := range pods(t, c, ns, "web") {
		if p.Spec.NodeName == "fake-0" && !p.ready() {
			t.Errorf("%+v", p)
		}
	}
	status := (*kubetest.Get[object](t, c, nodes, "", "fake-0"))["status"].(object)
	if capacity := status["capacity"].(object); fmt.Sprint(capacity["nvidia.com/gpu"]) != "1" {
		t.Errorf("%v", capacity)
	}
}

func TestWhatDevclusterCannotDoIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "c")
	for flag, says := range map[string]string{
		"--nodes=-1": "--nodes", "--nodes=61": "--nodes", "--gpus=-1": "--gpus", "--gpus=1025": "--gpus", "--nodes=x": "-nodes",
		"extra": `"extra"`, "--dir=": "--dir",
	} {
		out, err := exec.CommandContext(t.Context(), kubetest.Program(t), "up", "--dir", dir, flag).CombinedOutput() //nolint:gosec // the test's own
		if err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v: %s", flag, err, out)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a cluster was made")
	}
}
