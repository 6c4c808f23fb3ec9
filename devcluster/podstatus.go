package main

import (
	"cmp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of pods on fake nodes, by which tests choose what happens to them. Spans are those of time.ParseDuration.
const (
	// readyAfter is how long the containers take to be ready; no time without it.
	readyAfter = "devcluster.mainstay.io/ready-after"
	// waitsFor keeps the containers from starting, with a reason such as ImagePullBackOff.
	waitsFor = "devcluster.mainstay.io/waits-for"
	// runsFor is how long the containers run if their pod is to end (restartPolicy Never or OnFailure); one second
	// without it.
	runsFor = "devcluster.mainstay.io/runs-for"
	// exitCode is how the containers end; 0 without it.
	exitCode = "devcluster.mainstay.io/exit-code"

	// logs is what the containers have printed.
	logs = "devcluster.mainstay.io/logs"
)

// hostAddress is the address of all fake nodes.
const hostAddress = "127.0.0.1"

// nextStatus returns the status that a pod has next, or nil if it stays as it is, and after how long to look at it
// again; 0: when it changes.
func nextStatus(pod *corev1.Pod, now time.Time) (*corev1.PodStatus, time.Duration) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, 0
	}
	next := pod.Status.DeepCopy()
	if next.StartTime == nil {
		next.StartTime = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	next.HostIP, next.HostIPs = hostAddress, []corev1.HostIP{{IP: hostAddress}}
	begun := *next.StartTime
	age := now.Sub(begun.Time)
	untilReady := span(pod, readyAfter, 0) - age
	untilEnd := span(pod, runsFor, time.Second) - age
	forEver := pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
	var wait time.Duration
	switch reason := pod.Annotations[waitsFor]; {
	case reason != "":
		next.Phase = corev1.PodPending
		contain(pod, next, false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: reason, Message: "the annotation " + waitsFor + " says so",
		}})
		condition(next, now, "ContainersNotReady")
	case !forEver && untilEnd <= 0:
		code, err := strconv.Atoi(cmp.Or(pod.Annotations[exitCode], "0"))
		if err != nil || code < 0 {
			code = 1
		}
		why := "PodCompleted"
		next.Phase, reason = corev1.PodSucceeded, "Completed"
		if code != 0 {
			next.Phase, reason, why = corev1.PodFailed, "Error", "PodFailed"
		}
		contain(pod, next, false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(code), Reason: reason, StartedAt: begun, FinishedAt: metav1.NewTime(now.Truncate(time.Second)),
		}})
		condition(next, now, why)
	default:
		next.Phase = corev1.PodRunning
		contain(pod, next, untilReady <= 0, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: begun}})
		if untilReady > 0 {
			wait = untilReady
			condition(next, now, "ContainersNotReady")
		} else {
			condition(next, now, "")
		}
		if !forEver && (wait == 0 || untilEnd < wait) {
			wait = untilEnd
		}
	}
	if equality.Semantic.DeepEqual(next, &pod.Status) {
		next = nil
	}
	return next, wait
}

// span reads an annotation of a pod.
func span(pod *corev1.Pod, annotation string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(pod.Annotations[annotation])
	if err != nil || d < 0 {
		return otherwise
	}
	return d
}

// contain stores the state of all containers in a status. Those that come first have ended unless the others wait.
func contain(pod *corev1.Pod, to *corev1.PodStatus, ready bool, state corev1.ContainerState) {
	to.ContainerStatuses, to.InitContainerStatuses = nil, nil
	for _, c := range pod.Spec.Containers {
		to.ContainerStatuses = append(to.ContainerStatuses, status(pod, c, ready, state))
	}
	first := state
	if state.Waiting == nil {
		first = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			Reason: "Completed", StartedAt: *to.StartTime, FinishedAt: *to.StartTime,
		}}
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways { // a sidecar
			to.InitContainerStatuses = append(to.InitContainerStatuses, status(pod, c, ready, state))
			continue
		}
		to.InitContainerStatuses = append(to.InitContainerStatuses, status(pod, c, state.Waiting == nil, first))
	}
}

func status(pod *corev1.Pod, c corev1.Container, ready bool, state corev1.ContainerState) corev1.ContainerStatus {
	started := state.Running != nil
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: ready, Started: &started, State: state}
	if state.Waiting == nil {
		s.ImageID, s.ContainerID = "fake://"+c.Image, "fake://"+string(pod.UID)+"/"+c.Name
	}
	return s
}

// condition stores the conditions of a pod. A reason says why its containers are not ready.
func condition(to *corev1.PodStatus, now time.Time, reason string) {
	ready := corev1.ConditionTrue
	if reason != "" {
		ready = corev1.ConditionFalse
	}
	set := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) {
		for i := range to.Conditions {
			c := &to.Conditions[i]
			if c.Type != kind {
				continue
			}
			if c.Status != status {
				c.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
			}
			c.Status, c.Reason = status, reason
			return
		}
		to.Conditions = append(to.Conditions, corev1.PodCondition{
			Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	set(corev1.PodReadyToStartContainers, corev1.ConditionTrue, "")
	set(corev1.PodInitialized, corev1.ConditionTrue, "")
	set(corev1.ContainersReady, ready, reason)
	set(corev1.PodReady, ready, reason)
}
