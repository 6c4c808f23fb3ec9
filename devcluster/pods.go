package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// podKeeper plays the kubelets of the fake nodes: pods that are assigned to them go through their states, and no
// container is started.
type podKeeper struct {
	client kubernetes.Interface
	nodes  map[string]int // its number, by the name of a node
	pods   corelisters.PodLister
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]

	mu   sync.Mutex
	last map[string]int // address that was given last, by node
}

// podWorkers is how many pods change at the same time.
const podWorkers = 8

// keepPods plays the kubelets until ctx ends.
func keepPods(ctx context.Context, client kubernetes.Interface, n fakeNodes) error {
	k := &podKeeper{
		client: client, nodes: map[string]int{}, last: map[string]int{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	for i := range n.count {
		k.nodes[nodeName(i)] = i
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		},
	))
	informer := factory.Core().V1().Pods()
	k.pods = informer.Lister()
	add := func(o any) {
		if name, err := cache.ObjectToName(o); err == nil {
			k.queue.Add(name)
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var work sync.WaitGroup
	for range podWorkers {
		work.Go(func() { k.work(ctx) })
	}
	<-ctx.Done()
	k.queue.ShutDown()
	work.Wait()
	return nil
}

func (k *podKeeper) work(ctx context.Context) {
	for {
		name, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		wait, err := k.see(ctx, name)
		switch {
		case err != nil && ctx.Err() == nil:
			logProblem("pod "+name.String(), err)
			k.queue.AddRateLimited(name)
		case wait > 0:
			k.queue.Forget(name)
			k.queue.AddAfter(name, wait)
		default:
			k.queue.Forget(name)
		}
		k.queue.Done(name)
	}
}

// see brings a pod to its next state, and returns after how long it has another one.
func (k *podKeeper) see(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	pod, err := k.pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if _, ours := k.nodes[pod.Spec.NodeName]; !ours {
		return 0, nil
	}
	if pod.DeletionTimestamp != nil {
		now, uid := int64(0), pod.UID
		err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid},
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			err = nil // it is gone, or another one has its name
		}
		return 0, err
	}
	status, wait := nextStatus(pod, time.Now())
	if status == nil {
		return wait, nil
	}
	if status.PodIP == "" && status.Phase == corev1.PodRunning {
		if status.PodIP, err = k.address(pod.Spec.NodeName); err != nil {
			return 0, err
		}
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
	changed := pod.DeepCopy()
	changed.Status = *status
	_, err = k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		err = nil // what has changed comes again
	}
	return wait, err
}

// address returns an address in the network of a node that no pod has. It is an error if all are taken.
func (k *podKeeper) address(node string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pods, err := k.pods.List(labels.Everything())
	if err != nil {
		return "", err
	}
	taken := map[string]bool{}
	for _, p := range pods {
		taken[p.Status.PodIP] = true
	}
	for range podAddresses {
		k.last[node] = k.last[node]%podAddresses + 1
		if ip := podAddress(k.nodes[node], k.last[node]); !taken[ip] {
			return ip, nil
		}
	}
	return "", fmt.Errorf("the node %s has no free address", node)
}
