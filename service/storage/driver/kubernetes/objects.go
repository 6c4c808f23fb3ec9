package kubernetes

import (
	"time"

	"github.com/mainstay-infra/mainstay/kit/kube"
)

// object is one of which only the metadata counts.
type object struct {
	Meta kube.Meta `json:"metadata"`
}

// storageClass is a StorageClass.
type storageClass struct {
	Meta                 kube.Meta `json:"metadata"`
	Provisioner          string    `json:"provisioner"`
	VolumeBindingMode    string    `json:"volumeBindingMode"`
	AllowVolumeExpansion bool      `json:"allowVolumeExpansion"`
}

// capacity is a CSIStorageCapacity: what a storage class has room for, in one part of the cluster.
type capacity struct {
	StorageClassName string `json:"storageClassName"`
	Capacity         string `json:"capacity"`
}

// storage is an amount of it, as lists of resources have it.
type storage struct {
	Storage string `json:"storage,omitempty"`
}

// dataSource is what the content of a claim is made of.
type dataSource struct {
	APIGroup string `json:"apiGroup"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

type resources struct {
	Requests storage `json:"requests,omitzero"`
}

// claim is a PersistentVolumeClaim.
type claim struct {
	Meta   kube.Meta   `json:"metadata"`
	Spec   claimSpec   `json:"spec,omitzero"`
	Status claimStatus `json:"status,omitzero"`
}

type claimSpec struct {
	AccessModes      []string    `json:"accessModes,omitempty"`
	StorageClassName string      `json:"storageClassName,omitempty"`
	VolumeMode       string      `json:"volumeMode,omitempty"`
	Resources        resources   `json:"resources,omitzero"`
	DataSource       *dataSource `json:"dataSource,omitempty"`
}

type claimStatus struct {
	Phase      string      `json:"phase"`
	Capacity   storage     `json:"capacity"`
	Conditions []condition `json:"conditions"`
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

// snapshotClass is a VolumeSnapshotClass.
type snapshotClass struct {
	Meta   kube.Meta `json:"metadata"`
	Driver string    `json:"driver"`
}

// volumeSnapshot is a VolumeSnapshot.
type volumeSnapshot struct {
	Meta   kube.Meta      `json:"metadata"`
	Spec   snapshotSpec   `json:"spec,omitzero"`
	Status snapshotStatus `json:"status,omitzero"`
}

type snapshotSpec struct {
	Class  string         `json:"volumeSnapshotClassName,omitempty"`
	Source snapshotSource `json:"source,omitzero"`
}

type snapshotSource struct {
	Claim string `json:"persistentVolumeClaimName,omitempty"`
}

type snapshotStatus struct {
	Ready        bool      `json:"readyToUse"`
	RestoreSize  string    `json:"restoreSize"`
	CreationTime time.Time `json:"creationTime"`
	Error        struct {
		Message string `json:"message"`
	} `json:"error"`
}

// event is what a controller has to say about an object.
type event struct {
	Message string    `json:"message"`
	Last    time.Time `json:"lastTimestamp"`
}

// pod is one that may use claims.
type pod struct {
	Meta kube.Meta `json:"metadata"`
	Spec struct {
		Volumes []struct {
			Claim struct {
				Name string `json:"claimName"`
			} `json:"persistentVolumeClaim"`
		} `json:"volumes"`
	} `json:"spec"`
}
