// Package driver is the seam between the gateway and the storage systems below it: what a driver can
// do is cut into small interfaces, of which each driver implements those that its storage system has.
//
//	driver.go      Driver, what every storage system tells about itself
//	volume.go      Volumes: block devices and folders that the gateway makes, and the trash for them
//	snapshot.go    Snapshots and clones of volumes
//	image.go       Images that users of the storage system know, too, and volumes that are put back
//	group.go       Groups of volumes
//	data.go        The content of volumes, for backups
//	osd.go         OSDs that can be taken out, put in and weighted
//	mirror.go      Volumes that are mirrored to another storage system
//	bucket.go      Buckets of object gateways
//	ceph/          volumes as RBD images in a Ceph cluster
//	rgw/           buckets in Ceph's object gateway, and buckets of any S3 service that are only read
//	directory/     volumes in a folder of this host, such as a mounted NFS export
//	zfs/           volumes in a ZFS dataset of this host
//	kubernetes/    volumes as claims in a Kubernetes cluster
//	inventory/     what a file tells of a storage system that nothing else reaches
//	drivertest/    the suite that every driver passes
//
// # Rules for drivers
//
//   - Native names are chosen by the gateway before the first call, and unique. A call that is repeated
//     with the same native name, after a crash at any moment, finds what is there and finishes it.
//   - Nothing is there under its native name before it is complete.
//   - To delete what is gone already succeeds.
//   - What the gateway did not make is only read.
//   - Every call ends soon after its context.
//   - Errors that callers may read are faults (kit/fault), without paths of the host.
//
// It imports nothing of the service.
package driver

import "context"

// Capabilities are what a storage system can do.
type Capabilities struct {
	Block, File, Object, Snapshots, Clone, Expansion, Replication bool
}

// Health is the condition of a storage system, in its own judgement.
type Health string

// The conditions.
const (
	Healthy  Health = "ok"
	Warning  Health = "warning"
	Critical Health = "error"
	Unknown  Health = "unknown"
)

// Cluster is what a storage system tells about itself.
type Cluster struct {
	NativeID        string // identifies it for ever; the gateway refuses another one in its place
	Name            string // empty: that of the backend
	Health          Health
	Summary         string // a sentence about Health; empty if it is ok
	Raw             int64  // bytes
	Used            int64
	Available       int64
	Recovering      bool
	DegradedObjects int64
	Pools           []Pool
	OSDs            []OSD
}

// PoolKind is what a pool holds.
type PoolKind string

// The kinds of pools.
const (
	PoolRBD            PoolKind = "rbd"
	PoolCephFSData     PoolKind = "cephfs_data"
	PoolCephFSMetadata PoolKind = "cephfs_metadata"
	PoolRGW            PoolKind = "rgw"
	PoolNFSExport      PoolKind = "nfs_export"
	PoolZFS            PoolKind = "zfs"
	PoolStorageClass   PoolKind = "storage_class" // of Kubernetes
	PoolOther          PoolKind = "other"
)

// Holds reports whether volumes of a kind are made in pools of this kind.
func (k PoolKind) Holds(kind Kind) bool {
	switch k {
	case PoolRBD:
		return kind == Block
	case PoolCephFSData:
		return kind == Filesystem
	case PoolNFSExport, PoolZFS, PoolStorageClass:
		return kind == Block || kind == Filesystem
	}
	return false
}

// Pool is a part of a storage system in which volumes are.
type Pool struct {
	Name        string
	Kind        PoolKind
	DeviceClass string // empty: not known, or mixed
	Replicas    int    // how often data is stored
	Used        int64  // bytes
	Max         int64  // bytes that it can hold in all
	Health      Health
}

// OSD is a daemon that stores data on one device.
type OSD struct {
	ID          int
	Up, In      bool
	DeviceClass string
	Host        string
	Used        int64 // bytes
	Capacity    int64 // bytes
	// Weight is the part of its share of the data that it holds, from 0 to 1. Nil: not known.
	Weight *float64
}

// Driver is a connection to a storage system. It is safe for concurrent use. Drivers that can make
// volumes implement Volumes, and so on.
type Driver interface {
	Capabilities() Capabilities
	// Inspect asks the storage system for its condition.
	Inspect(ctx context.Context) (Cluster, error)
	// EachVolume calls do with every volume of the storage system, also those that the gateway did not
	// make, in no order. It holds only a bounded number of them in memory.
	EachVolume(ctx context.Context, do func(Volume) error) error
	Close() error
}
