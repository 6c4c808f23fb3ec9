package kube

// snapshotGroup is the group of the CSI snapshots, which clusters have only if somebody has installed their CRDs.
const snapshotGroup = "snapshot.storage.k8s.io"

// Kinds that several packages work with.
var (
	Namespaces             = Resource{Version: "v1", Kind: "Namespace", Plural: "namespaces"}
	Pods                   = Resource{Version: "v1", Kind: "Pod", Plural: "pods"}
	Events                 = Resource{Version: "v1", Kind: "Event", Plural: "events"}
	PersistentVolumes      = Resource{Version: "v1", Kind: "PersistentVolume", Plural: "persistentvolumes"}
	PersistentVolumeClaims = Resource{Version: "v1", Kind: "PersistentVolumeClaim", Plural: "persistentvolumeclaims"}
	StorageClasses         = Resource{
		Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass", Plural: "storageclasses",
	}
	CSIStorageCapacities = Resource{
		Group: "storage.k8s.io", Version: "v1", Kind: "CSIStorageCapacity", Plural: "csistoragecapacities",
	}
	VolumeSnapshots = Resource{
		Group: snapshotGroup, Version: "v1", Kind: "VolumeSnapshot", Plural: "volumesnapshots",
	}
	VolumeSnapshotClasses = Resource{
		Group: snapshotGroup, Version: "v1", Kind: "VolumeSnapshotClass", Plural: "volumesnapshotclasses",
	}
	VolumeSnapshotContents = Resource{
		Group: snapshotGroup, Version: "v1", Kind: "VolumeSnapshotContent", Plural: "volumesnapshotcontents",
	}
)
