package main

import (
	"cmp"
	"context"
	"embed"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// vmCRDs are the kinds of KubeVirt that vmKeeper plays the controllers of.
//
//go:embed crds/kubevirt.io_*.yaml
var vmCRDs embed.FS

var (
	vmResource  = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}
	vmiResource = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}
)

// vmKeeper plays KubeVirt: VMs have instances, which have a pod each and go through their phases. No guest runs.
type vmKeeper struct {
	client    kubernetes.Interface
	vms, vmis dynamic.NamespaceableResourceInterface
	seenVMs   cache.GenericLister
	seenVMIs  cache.GenericLister
	pods      corelisters.PodLister
	queue     workqueue.TypedRateLimitingInterface[cache.ObjectName] // names of VMs, which their instances have, too
}

// keepVMs plays KubeVirt until ctx ends.
func keepVMs(ctx context.Context, client kubernetes.Interface, objects dynamic.Interface) error {
	k := &vmKeeper{
		client: client, vms: objects.Resource(vmResource), vmis: objects.Resource(vmiResource),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	add := func(o any) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		object, ok := o.(metav1.Object)
		if !ok {
			return
		}
		name := object.GetName()
		if _, isPod := o.(*corev1.Pod); isPod {
			name = object.GetLabels()[launcherOf]
		}
		k.queue.Add(cache.NewObjectName(object.GetNamespace(), name))
	}
	events := cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }, DeleteFunc: add}
	all := dynamicinformer.NewDynamicSharedInformerFactory(objects, 0)
	vms, vmis := all.ForResource(vmResource), all.ForResource(vmiResource)
	k.seenVMs, k.seenVMIs = vms.Lister(), vmis.Lister()
	launchers := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(
		func(o *metav1.ListOptions) { o.LabelSelector = launcherOf },
	))
	pods := launchers.Core().V1().Pods()
	k.pods = pods.Lister()
	for _, informer := range []cache.SharedIndexInformer{vms.Informer(), vmis.Informer(), pods.Informer()} {
		if _, err := informer.AddEventHandler(events); err != nil {
			return err
		}
	}
	all.Start(ctx.Done())
	launchers.Start(ctx.Done())
	all.WaitForCacheSync(ctx.Done())
	launchers.WaitForCacheSync(ctx.Done())
	var work sync.WaitGroup
	for range podWorkers {
		work.Go(func() { k.work(ctx) })
	}
	<-ctx.Done()
	k.queue.ShutDown()
	work.Wait()
	return nil
}

func (k *vmKeeper) work(ctx context.Context) {
	for {
		name, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		switch err := k.see(ctx, name); {
		case err == nil, apierrors.IsNotFound(err):
			k.queue.Forget(name)
		case ctx.Err() == nil:
			if !apierrors.IsConflict(err) {
				logProblem("VM "+name.String(), err)
			}
			k.queue.AddRateLimited(name)
		}
		k.queue.Done(name)
	}
}

// see brings a VM and its instance to their next states.
func (k *vmKeeper) see(ctx context.Context, name cache.ObjectName) error {
	vm, err := seen(k.seenVMs, name)
	if err != nil {
		return err
	}
	vmi, err := seen(k.seenVMIs, name)
	if err != nil {
		return err
	}
	if vmi != nil {
		if err := k.seeInstance(ctx, vmi); err != nil {
			return err
		}
	}
	if vm != nil {
		return k.seeVM(ctx, vm, vmi)
	}
	return nil
}

// seen returns a copy of an object, or nil if the object does not exist.
func seen(all cache.GenericLister, name cache.ObjectName) (*unstructured.Unstructured, error) {
	o, err := all.ByNamespace(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return o.(*unstructured.Unstructured).DeepCopy(), nil
}

// seeVM makes or ends the instance of a VM, as its run strategy says, and stores its status.
func (k *vmKeeper) seeVM(ctx context.Context, vm, vmi *unstructured.Unstructured) error {
	vms, vmis := k.vms.Namespace(vm.GetNamespace()), k.vmis.Namespace(vm.GetNamespace())
	goes := vm.GetDeletionTimestamp() != nil
	switch {
	case !goes && !has(vm, vmFinalizer):
		vm.SetFinalizers(append(vm.GetFinalizers(), vmFinalizer))
		_, err := vms.Update(ctx, vm, metav1.UpdateOptions{})
		return err // it comes again
	case goes && vmi == nil:
		if !has(vm, vmFinalizer) {
			return nil
		}
		vm.SetFinalizers(without(vm.GetFinalizers(), vmFinalizer))
		_, err := vms.Update(ctx, vm, metav1.UpdateOptions{})
		return err
	}
	run, again := wanted(vm, vmi)
	switch {
	case goes, vmi != nil && !run, again:
		if vmi.GetDeletionTimestamp() == nil {
			uid := vmi.GetUID()
			if err := vmis.Delete(ctx, vmi.GetName(), metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &uid},
			}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	case run && vmi == nil:
		if _, err := vmis.Create(ctx, instanceOf(vm), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	status := vmStatus(vm, vmi, run)
	if equality.Semantic.DeepEqual(status, vm.Object["status"]) {
		return nil
	}
	vm.Object["status"] = status
	_, err := vms.UpdateStatus(ctx, vm, metav1.UpdateOptions{})
	return err
}

// seeInstance makes or ends the pod of an instance, and stores the phase that follows.
func (k *vmKeeper) seeInstance(ctx context.Context, vmi *unstructured.Unstructured) error {
	vmis, pods := k.vmis.Namespace(vmi.GetNamespace()), k.client.CoreV1().Pods(vmi.GetNamespace())
	pod, err := k.pods.Pods(vmi.GetNamespace()).Get(launcherName(vmi))
	if err != nil {
		pod = nil
	}
	if vmi.GetDeletionTimestamp() != nil {
		switch {
		case pod != nil && pod.DeletionTimestamp == nil:
			return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		case pod == nil && has(vmi, vmiFinalizer):
			vmi.SetFinalizers(without(vmi.GetFinalizers(), vmiFinalizer))
			_, err := vmis.Update(ctx, vmi, metav1.UpdateOptions{})
			return err
		}
		return nil
	}
	if phase := text(vmi, "status", "phase"); pod == nil && (phase == "" || phase == pending) {
		made, err := launcher(vmi)
		if err != nil {
			return err
		}
		if _, err = pods.Create(ctx, made, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		pod = made
	}
	status := instanceStatus(vmi, pod)
	if equality.Semantic.DeepEqual(status, vmi.Object["status"]) && has(vmi, vmiFinalizer) {
		return nil
	}
	vmi.Object["status"] = status
	if !has(vmi, vmiFinalizer) {
		vmi.SetFinalizers(append(vmi.GetFinalizers(), vmiFinalizer))
	}
	_, err = vmis.Update(ctx, vmi, metav1.UpdateOptions{})
	return err
}

func has(o metav1.Object, finalizer string) bool {
	for _, f := range o.GetFinalizers() {
		if f == finalizer {
			return true
		}
	}
	return false
}

func without(all []string, one string) (rest []string) {
	for _, f := range all {
		if f != one {
			rest = append(rest, f)
		}
	}
	return rest
}

// text returns a text in an object, or "".
func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

func launcherName(vmi *unstructured.Unstructured) string {
	return "virt-launcher-" + vmi.GetName() + "-" + string(cmp.Or(vmi.GetUID(), types.UID("00000")))[:5]
}
