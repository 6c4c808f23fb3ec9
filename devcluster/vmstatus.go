package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Names of KubeVirt (kubevirt.io/api v1.6.0, core/v1).
const (
	vmFinalizer  = "kubevirt.io/virtualMachineControllerFinalize"
	vmiFinalizer = "foregroundDeleteVirtualMachine"
	// launcherOf is the label of the pod of an instance.
	launcherOf = "vm.kubevirt.io/name"
)

// Phases of instances.
const (
	pending    = "Pending"
	scheduling = "Scheduling"
	scheduled  = "Scheduled"
	running    = "Running"
	succeeded  = "Succeeded"
	failed     = "Failed"
)

// final reports whether an instance is in its last phase.
func final(vmi *unstructured.Unstructured) bool {
	phase := text(vmi, "status", "phase")
	return phase == succeeded || phase == failed
}

// strategy returns the run strategy of a VM. Old ones have spec.running.
func strategy(vm *unstructured.Unstructured) string {
	if s := text(vm, "spec", "runStrategy"); s != "" {
		return s
	}
	if on, _, _ := unstructured.NestedBool(vm.Object, "spec", "running"); on {
		return "Always"
	}
	return "Halted"
}

// wanted reports whether a VM is to have an instance, and whether the one that it has is to make room for another one.
func wanted(vm, vmi *unstructured.Unstructured) (run, again bool) {
	over := vmi != nil && final(vmi)
	switch strategy(vm) {
	case "Always":
		return true, over
	case "RerunOnFailure":
		return true, over && text(vmi, "status", "phase") == failed
	case "Once":
		return true, false
	case "Manual": // calls that this program does not serve start and stop it
		return vmi != nil, false
	}
	return false, false
}

// instanceOf returns the instance of a VM.
func instanceOf(vm *unstructured.Unstructured) *unstructured.Unstructured {
	spec, _, _ := unstructured.NestedMap(vm.Object, "spec", "template", "spec")
	vmi := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	vmi.SetAPIVersion("kubevirt.io/v1")
	vmi.SetKind("VirtualMachineInstance")
	vmi.SetName(vm.GetName())
	vmi.SetNamespace(vm.GetNamespace())
	labels, _, _ := unstructured.NestedStringMap(vm.Object, "spec", "template", "metadata", "labels")
	annotations, _, _ := unstructured.NestedStringMap(vm.Object, "spec", "template", "metadata", "annotations")
	vmi.SetLabels(labels)
	vmi.SetAnnotations(annotations)
	vmi.SetFinalizers([]string{vmiFinalizer})
	vmi.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(vm, vm.GroupVersionKind())})
	return vmi
}

// vmStatus returns the status of a VM with an instance, or without one (nil).
func vmStatus(vm, vmi *unstructured.Unstructured, run bool) map[string]any {
	printable, ready, reason := "Stopped", "False", "VMINotExists"
	if vmi != nil {
		ready, reason = "False", "GuestNotRunning"
		switch phase := text(vmi, "status", "phase"); {
		case vmi.GetDeletionTimestamp() != nil:
			printable = "Stopping"
		case phase == running:
			printable = "Running"
			ready, reason = "True", ""
		case phase == succeeded, phase == failed:
			printable = "Stopped"
		case unschedulable(vmi):
			printable = "ErrorUnschedulable"
		default:
			printable = "Starting"
		}
	} else if run {
		printable = "Starting"
	}
	if vm.GetDeletionTimestamp() != nil {
		printable = "Terminating"
	}
	condition := map[string]any{
		"type": "Ready", "status": ready, "lastProbeTime": nil,
		"lastTransitionTime": changedAt(vm, "Ready", ready),
	}
	if reason != "" {
		condition["reason"] = reason
	}
	status := map[string]any{
		"created": vmi != nil, "ready": ready == "True", "printableStatus": printable, "runStrategy": strategy(vm),
		"desiredGeneration": vm.GetGeneration(), "observedGeneration": vm.GetGeneration(), "conditions": []any{condition},
	}
	return status
}

// unschedulable reports whether the scheduler has found no node for an instance.
func unschedulable(vmi *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(vmi.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "PodScheduled" && c["reason"] == "Unschedulable" {
			return true
		}
	}
	return false
}

// changedAt returns when a condition of an object got its status.
func changedAt(u *unstructured.Unstructured, kind, status string) string {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind && c["status"] == status {
			if at, ok := c["lastTransitionTime"].(string); ok {
				return at
			}
		}
	}
	return metav1.Now().UTC().Format("2006-01-02T15:04:05Z")
}

// instanceStatus returns the status of an instance after a look at its pod, which is nil if it is gone.
func instanceStatus(vmi *unstructured.Unstructured, pod *corev1.Pod) map[string]any {
	old := text(vmi, "status", "phase")
	status, _, _ := unstructured.NestedMap(vmi.Object, "status")
	if status == nil {
		status = map[string]any{}
	}
	phase := old
	switch {
	case final(vmi):
		return status
	case old == "":
		phase = scheduling
	case pod == nil:
		phase = failed
	case pod.Status.Phase == corev1.PodSucceeded:
		phase = succeeded
	case pod.Status.Phase == corev1.PodFailed:
		phase = failed
	case old == scheduled, old == running:
		phase = running
	case pod.Status.Phase == corev1.PodRunning && podReady(pod):
		phase = scheduled
	default:
		phase = scheduling
	}
	if phase != old {
		times, _ := status["phaseTransitionTimestamps"].([]any)
		status["phaseTransitionTimestamps"] = append(times, map[string]any{
			"phase": phase, "phaseTransitionTimestamp": metav1.Now().UTC().Format("2006-01-02T15:04:05Z"),
		})
	}
	status["phase"] = phase
	conditions := []any{}
	add := func(kind, is, reason, message string) {
		c := map[string]any{"type": kind, "status": is, "lastProbeTime": nil, "lastTransitionTime": changedAt(vmi, kind, is)}
		if reason != "" {
			c["reason"], c["message"] = reason, message
		}
		conditions = append(conditions, c)
	}
	switch phase {
	case running:
		add("Ready", "True", "", "")
		add("LiveMigratable", "False", "NotMigratable", "no guest runs here")
		status["nodeName"] = pod.Spec.NodeName
		status["interfaces"] = []any{map[string]any{
			"name": "default", "ipAddress": pod.Status.PodIP, "ipAddresses": []any{pod.Status.PodIP}, "infoSource": "domain",
		}}
	default:
		add("Ready", "False", "GuestNotRunning", "Guest VM is not reported as running")
		delete(status, "interfaces")
		if pod != nil {
			for _, c := range pod.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
					add("PodScheduled", "False", c.Reason, c.Message)
				}
			}
			if pod.Spec.NodeName != "" {
				status["nodeName"] = pod.Spec.NodeName
			}
		}
	}
	status["conditions"] = conditions
	return status
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// domain is what counts of the spec of an instance for its pod.
type domain struct {
	Domain struct {
		CPU struct {
			Cores, Sockets, Threads int64
		}
		Memory struct {
			Guest *resource.Quantity
		}
		Resources corev1.ResourceRequirements
		Devices   struct {
			GPUs []struct {
				DeviceName string
			}
		}
	}
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	Affinity     *corev1.Affinity
}

const (
	// overhead is about what KubeVirt adds to the memory of a guest for its own processes.
	overhead = 250 << 20
	// perCore is KubeVirt's request for a virtual CPU: it gives ten of them a core.
	perCore = 100 // millicores
)

// launcher returns the pod of an instance.
func launcher(vmi *unstructured.Unstructured) (*corev1.Pod, error) {
	var d domain
	spec, _, _ := unstructured.NestedMap(vmi.Object, "spec")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &d); err != nil {
		return nil, fmt.Errorf("its spec: %w", err)
	}
	cores := max(d.Domain.CPU.Cores, 1) * max(d.Domain.CPU.Sockets, 1) * max(d.Domain.CPU.Threads, 1)
	cpu := *resource.NewMilliQuantity(cores*perCore, resource.DecimalSI)
	if q, ok := d.Domain.Resources.Requests[corev1.ResourceCPU]; ok {
		cpu = q
	}
	memory := d.Domain.Resources.Requests.Memory().Value()
	if guest := d.Domain.Memory.Guest; guest != nil {
		memory = guest.Value()
	}
	resources := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: cpu, corev1.ResourceMemory: *resource.NewQuantity(memory+overhead, resource.BinarySI),
		},
		Limits: corev1.ResourceList{},
	}
	for _, gpu := range d.Domain.Devices.GPUs {
		name := corev1.ResourceName(gpu.DeviceName)
		n := resources.Limits[name]
		n.Add(*resource.NewQuantity(1, resource.DecimalSI))
		resources.Limits[name] = n
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: launcherName(vmi), Namespace: vmi.GetNamespace(), Labels: map[string]string{}, Annotations: map[string]string{
				"kubevirt.io/domain": vmi.GetName(), runsFor: "1000000h",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, vmi.GroupVersionKind())},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, NodeSelector: map[string]string{schedulable: "true"},
			Tolerations: append(d.Tolerations, corev1.Toleration{Key: fakeNode, Operator: corev1.TolerationOpExists}),
			Affinity:    d.Affinity,
			Containers:  []corev1.Container{{Name: "compute", Image: "virt-launcher", Resources: resources}},
		},
	}
	for key, value := range d.NodeSelector {
		pod.Spec.NodeSelector[key] = value
	}
	for key, value := range vmi.GetLabels() {
		pod.Labels[key] = value
	}
	for key, value := range vmi.GetAnnotations() {
		pod.Annotations[key] = value
	}
	pod.Labels["kubevirt.io"], pod.Labels["kubevirt.io/created-by"] = "virt-launcher", string(vmi.GetUID())
	pod.Labels[launcherOf] = vmi.GetName()
	return pod, nil
}
