package kubetest

import (
	"time"

	"github.com/mainstay-infra/mainstay/kit/kube"
)

// Quotas is the kind of Quota.
var Quotas = kube.Resource{Version: "v1", Kind: "ResourceQuota", Plural: "resourcequotas"}

// The objects of tests have structs of their own: with those of what is tested, a field that is wrong there would be
// wrong here as well.

// Object is one of which only the metadata counts.
type Object struct {
	Meta kube.Meta `json:"metadata"`
}

// Class is a StorageClass.
type Class struct {
	Meta                 kube.Meta         `json:"metadata"`
	Provisioner          string            `json:"provisioner"`
	Parameters           map[string]string `json:"parameters,omitempty"`
	ReclaimPolicy        string            `json:"reclaimPolicy,omitempty"`
	VolumeBindingMode    string            `json:"volumeBindingMode,omitempty"`
	AllowVolumeExpansion bool              `json:"allowVolumeExpansion,omitempty"`
}

// Capacity is a CSIStorageCapacity.
type Capacity struct {
	Meta             kube.Meta `json:"metadata"`
	StorageClassName string    `json:"storageClassName"`
	Capacity         string    `json:"capacity"`
}

// Storage is an amount of it, as lists of resources have it.
type Storage struct {
	Storage string `json:"storage,omitempty"`
}

// Source is what the content of a claim is made of.
type Source struct {
	APIGroup string `json:"apiGroup,omitempty"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

// Claim is a PersistentVolumeClaim.
type Claim struct {
	Meta   kube.Meta   `json:"metadata"`
	Spec   ClaimSpec   `json:"spec,omitzero"`
	Status ClaimStatus `json:"status,omitzero"`
}

// ClaimSpec is what a claim asks for.
type ClaimSpec struct {
	AccessModes      []string `json:"accessModes,omitempty"`
	StorageClassName string   `json:"storageClassName,omitempty"`
	VolumeMode       string   `json:"volumeMode,omitempty"`
	VolumeName       string   `json:"volumeName,omitempty"`
	Resources        struct {
		Requests Storage `json:"requests,omitzero"`
	} `json:"resources,omitzero"`
	DataSource *Source `json:"dataSource,omitempty"`
}

// ClaimStatus is what a claim has.
type ClaimStatus struct {
	Phase      string      `json:"phase,omitempty"`
	Capacity   Storage     `json:"capacity,omitzero"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is one of a claim.
type Condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// Ref refers to an object.
type Ref struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	UID        string `json:"uid,omitempty"`
}

// Volume is a PersistentVolume.
type Volume struct {
	Meta   kube.Meta    `json:"metadata"`
	Spec   VolumeSpec   `json:"spec,omitzero"`
	Status VolumeStatus `json:"status,omitzero"`
}

// VolumeSpec is what a volume is.
type VolumeSpec struct {
	Capacity         Storage  `json:"capacity,omitzero"`
	AccessModes      []string `json:"accessModes,omitempty"`
	ReclaimPolicy    string   `json:"persistentVolumeReclaimPolicy,omitempty"`
	StorageClassName string   `json:"storageClassName,omitempty"`
	VolumeMode       string   `json:"volumeMode,omitempty"`
	ClaimRef         *Ref     `json:"claimRef,omitempty"`
	CSI              *Handle  `json:"csi,omitempty"`
}

// VolumeStatus is the phase of a volume.
type VolumeStatus struct {
	Phase string `json:"phase,omitempty"`
}

// Handle names a volume in its storage system.
type Handle struct {
	Driver           string            `json:"driver"`
	VolumeHandle     string            `json:"volumeHandle"`
	VolumeAttributes map[string]string `json:"volumeAttributes,omitempty"`
}

// SnapshotClass is a VolumeSnapshotClass.
type SnapshotClass struct {
	Meta           kube.Meta `json:"metadata"`
	Driver         string    `json:"driver"`
	DeletionPolicy string    `json:"deletionPolicy"`
}

// Snapshot is a VolumeSnapshot.
type Snapshot struct {
	Meta kube.Meta `json:"metadata"`
	Spec struct {
		Class  string `json:"volumeSnapshotClassName,omitempty"`
		Source struct {
			Claim string `json:"persistentVolumeClaimName,omitempty"`
		} `json:"source,omitzero"`
	} `json:"spec,omitzero"`
	Status SnapshotStatus `json:"status,omitzero"`
}

// SnapshotStatus is what a snapshot has.
type SnapshotStatus struct {
	Content      string         `json:"boundVolumeSnapshotContentName,omitempty"`
	CreationTime time.Time      `json:"creationTime,omitzero"`
	Ready        bool           `json:"readyToUse"`
	RestoreSize  string         `json:"restoreSize,omitempty"`
	Error        *SnapshotError `json:"error,omitempty"`
}

// SnapshotError is why a snapshot is not ready.
type SnapshotError struct {
	Message string    `json:"message"`
	Time    time.Time `json:"time"`
}

// SnapshotContent is a VolumeSnapshotContent.
type SnapshotContent struct {
	Meta   kube.Meta           `json:"metadata"`
	Spec   SnapshotContentSpec `json:"spec,omitzero"`
	Status SnapshotHandle      `json:"status,omitzero"`
}

// SnapshotContentSpec is what a content is of.
type SnapshotContentSpec struct {
	DeletionPolicy string `json:"deletionPolicy"`
	Driver         string `json:"driver"`
	Class          string `json:"volumeSnapshotClassName,omitempty"`
	Source         struct {
		VolumeHandle string `json:"volumeHandle"`
	} `json:"source"`
	Snapshot Ref `json:"volumeSnapshotRef"`
}

// SnapshotHandle names a snapshot in its storage system.
type SnapshotHandle struct {
	CreationTime int64  `json:"creationTime,omitempty"` // nanoseconds
	Ready        bool   `json:"readyToUse"`
	RestoreSize  int64  `json:"restoreSize"`
	Handle       string `json:"snapshotHandle,omitempty"`
}

// Quota is a ResourceQuota.
type Quota struct {
	Meta kube.Meta `json:"metadata"`
	Spec struct {
		Hard map[string]string `json:"hard"`
	} `json:"spec"`
	Status struct {
		Hard map[string]string `json:"hard,omitempty"`
		Used map[string]string `json:"used,omitempty"`
	} `json:"status,omitzero"`
}

// Event tells what a controller has to say about an object.
type Event struct {
	Meta     kube.Meta `json:"metadata"`
	Involved Ref       `json:"involvedObject"`
	Type     string    `json:"type"`
	Reason   string    `json:"reason"`
	Message  string    `json:"message"`
}

// Pod is one that uses claims.
type Pod struct {
	Meta kube.Meta `json:"metadata"`
	Spec PodSpec   `json:"spec"`
}

// PodSpec is what a pod is made of.
type PodSpec struct {
	NodeName   string      `json:"nodeName,omitempty"`
	Containers []Container `json:"containers"`
	Volumes    []PodVolume `json:"volumes"`
	Grace      int         `json:"terminationGracePeriodSeconds"`
}

// Container is one of a pod.
type Container struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// PodVolume is a claim that a pod uses.
type PodVolume struct {
	Name  string `json:"name"`
	Claim struct {
		Name string `json:"claimName"`
	} `json:"persistentVolumeClaim"`
}

// PodUsing returns a pod that uses a claim, on a node that there is not. It goes as soon as it is deleted.
func PodUsing(name, claim string) *Pod {
	v := PodVolume{Name: "data"}
	v.Claim.Name = claim
	return &Pod{Meta: kube.Meta{Name: name}, Spec: PodSpec{
		NodeName: "none", Containers: []Container{{Name: "main", Image: "none"}}, Volumes: []PodVolume{v},
	}}
}
