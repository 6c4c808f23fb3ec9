package main

import (
	"context"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationapply "k8s.io/client-go/applyconfigurations/coordination/v1"
	"k8s.io/client-go/kubernetes"
)

// Labels and taints of fake nodes.
const (
	// fakeNode marks nodes on which nothing runs. If the cluster has a real node, it is also their taint, so that only
	// pods get there that tolerate it.
	fakeNode = "devcluster.mainstay.io/fake"
	// schedulable is KubeVirt's label of nodes that can have VMs.
	schedulable = "kubevirt.io/schedulable"
	// gpus is the resource of NVIDIA's device plugin.
	gpus corev1.ResourceName = "nvidia.com/gpu"
)

const (
	leaseSeconds = 40
	// renewEvery is how often nodes say that they are there, as kubelets do.
	renewEvery = 10 * time.Second
)

// fakeNodes are the nodes of a cluster on which nothing runs. Each of them has gpus.
type fakeNodes struct {
	count, gpus int
	tainted     bool           // there is a real node for pods that do not ask for a fake one
	kubelets    []net.Listener // where they answer
}

const (
	// maxGPUs is how many a node can have.
	maxGPUs = 1024
	// maxNodes is how many there can be at most: each has four of the 256 networks of its pods.
	maxNodes = 60
	// podAddresses is how many addresses a node has for its pods.
	podAddresses = 1022
)

func nodeName(i int) string { return fmt.Sprintf("fake-%d", i) }

// podNetwork returns the network of the pods of a node.
func podNetwork(node int) string { return fmt.Sprintf("10.244.%d.0/22", 4*node) }

// podAddress returns an address in the network of a node. n is from 1 to podAddresses.
func podAddress(node, n int) string { return fmt.Sprintf("10.244.%d.%d", 4*node+n/256, n%256) }

// node returns a node as its kubelet would describe it.
func (n fakeNodes) node(i int) *corev1.Node {
	name := nodeName(i)
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("1000"),
	}
	labels := map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", fakeNode: "true",
		corev1.LabelTopologyRegion: "local", corev1.LabelTopologyZone: fmt.Sprintf("zone-%c", 'a'+i%3), schedulable: "true",
	}
	if n.gpus > 0 {
		room[gpus] = *resource.NewQuantity(int64(n.gpus), resource.DecimalSI)
		labels[string(gpus)+".present"] = "true"
	}
	var taints []corev1.Taint
	if n.tainted {
		taints = []corev1.Taint{{Key: fakeNode, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	now := metav1.Now()
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{PodCIDR: podNetwork(i), ProviderID: "fake://" + name, Taints: taints},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{
				{
					Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "nothing runs here",
					LastHeartbeatTime: now, LastTransitionTime: now,
				},
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: hostAddress}, {Type: corev1.NodeHostName, Address: name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{
				Port: int32(n.kubelets[i].Addr().(*net.TCPAddr).Port),
			}},
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v0.0.0-fake"},
		},
	}
}

// register makes the nodes, or brings those of an earlier run up to date, and removes the ones that are too many.
func (n fakeNodes) register(ctx context.Context, client kubernetes.Interface) error {
	nodes := client.CoreV1().Nodes()
	known, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: fakeNode})
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for i := range n.count {
		node := n.node(i)
		wanted[node.Name] = true
		if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		now, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Spec.Taints = node.Spec.Taints
		if now, err = nodes.Update(ctx, now, metav1.UpdateOptions{}); err != nil {
			return err
		}
		now.Status = node.Status
		if _, err := nodes.UpdateStatus(ctx, now, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if err := renew(ctx, client, node.Name); err != nil {
			return err
		}
	}
	for _, node := range known.Items {
		if wanted[node.Name] {
			continue
		}
		if err := nodes.Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// renew says that a node is there.
func renew(ctx context.Context, client kubernetes.Interface, name string) error {
	lease := coordinationapply.Lease(name, corev1.NamespaceNodeLease).WithSpec(coordinationapply.LeaseSpec().
		WithHolderIdentity(name).WithLeaseDurationSeconds(leaseSeconds).WithRenewTime(metav1.NowMicro()))
	_, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Apply(
		ctx, lease, metav1.ApplyOptions{FieldManager: fieldManager, Force: true},
	)
	return err
}

// keep renews the leases of the nodes until ctx ends. A lease that could not be renewed is tried again the next time.
func (n fakeNodes) keep(ctx context.Context, client kubernetes.Interface) error {
	for tick := time.NewTicker(renewEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		for i := range n.count {
			if err := renew(ctx, client, nodeName(i)); err != nil && ctx.Err() == nil {
				logProblem("lease of "+nodeName(i), err)
			}
		}
	}
}
