//go:build ceph

package cephd

// #cgo LDFLAGS: -lrados -lrbd
// #include <stdlib.h>
// #include <rbd/librbd.h>
import "C"

import (
	"unsafe"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// copies returns the snapshots by which an image is mirrored, oldest first. go-ceph does not tell how far they are, so
// the image is opened a second time for that.
func (p *pool) copies(image *rbd.Image, name string) (all []wire.MirrorCopy, err error) {
	snapshots, err := image.GetSnapshotNames()
	if err != nil {
		return nil, err
	}
	called := C.CString(name)
	defer C.free(unsafe.Pointer(called))
	var opened C.rbd_image_t
	if n := C.rbd_open_read_only(C.rados_ioctx_t(p.Pointer()), called, &opened, nil); n < 0 {
		return nil, unix.Errno(-n)
	}
	defer C.rbd_close(opened)
	for _, s := range snapshots {
		var kind C.rbd_snap_namespace_type_t
		if C.rbd_snap_get_namespace_type(opened, C.uint64_t(s.Id), &kind) < 0 || kind != C.RBD_SNAP_NAMESPACE_TYPE_MIRROR {
			continue // or it was removed meanwhile
		}
		var space C.rbd_snap_mirror_namespace_t
		if C.rbd_snap_get_mirror_namespace(opened, C.uint64_t(s.Id), &space, C.sizeof_rbd_snap_mirror_namespace_t) < 0 {
			continue
		}
		primary := space.state == C.RBD_SNAP_MIRROR_STATE_PRIMARY || space.state == C.RBD_SNAP_MIRROR_STATE_PRIMARY_DEMOTED
		one := wire.MirrorCopy{
			ID: s.Id, Complete: primary || bool(space.complete),
			Demoted: space.state == C.RBD_SNAP_MIRROR_STATE_PRIMARY_DEMOTED ||
				space.state == C.RBD_SNAP_MIRROR_STATE_NON_PRIMARY_DEMOTED,
		}
		if !primary {
			one.Of = uint64(space.primary_snap_id)
		}
		C.rbd_snap_mirror_namespace_cleanup(&space, C.sizeof_rbd_snap_mirror_namespace_t)
		taken, err := image.GetSnapTimestamp(s.Id)
		if err != nil {
			continue
		}
		one.At = at(taken)
		all = append(all, one)
	}
	return all, nil
}
