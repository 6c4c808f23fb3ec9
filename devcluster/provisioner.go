package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// localClass is the default storage class of a cluster with a real node: folders of the host.
	localClass  = "local"
	provisioner = "devcluster.mainstay.io/local"
	// selectedNode is how the scheduler says where a claim is needed.
	selectedNode = "volume.kubernetes.io/selected-node"
)

// provisionEvery is how often claims are looked for: they are few.
const provisionEvery = time.Second

// provision makes volumes for the claims of the class local, and removes those whose claims are deleted, until ctx ends.
func (n *node) provision(ctx context.Context, client kubernetes.Interface) error {
	policy, binding := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingWaitForFirstConsumer
	if _, err := client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: localClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: provisioner, ReclaimPolicy: &policy, VolumeBindingMode: &binding,
	}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for tick := time.NewTicker(provisionEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		if err := n.provisionOnce(ctx, client); err != nil && ctx.Err() == nil {
			logProblem("volumes of the node", err)
		}
	}
}

func (n *node) provisionOnce(ctx context.Context, client kubernetes.Interface) error {
	claims, err := client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.Spec.VolumeName != "" || c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != localClass ||
			c.Annotations[selectedNode] != realNode || c.DeletionTimestamp != nil {
			continue
		}
		v := n.volume(c)
		if err := os.MkdirAll(v.Spec.HostPath.Path, 0o777); err != nil {
			return err
		}
		if err := os.Chmod(v.Spec.HostPath.Path, 0o777); err != nil { // containers may have any user
			return err
		}
		_, err := client.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	volumes, err := client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, v := range volumes.Items {
		if v.Annotations["pv.kubernetes.io/provisioned-by"] != provisioner || v.Status.Phase != corev1.VolumeReleased ||
			v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			continue
		}
		if err := os.RemoveAll(filepath.Join(n.in("volumes"), v.Name)); err != nil {
			return err
		}
		err := client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// volume returns that of a claim.
func (n *node) volume(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	name := "pvc-" + string(c.UID)
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes: c.Spec.AccessModes, StorageClassName: localClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(n.in("volumes"), name)},
			},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{realNode},
				}}}},
			}},
		},
	}
}
