//go:build ceph

package cephd

import (
	"strings"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

func noGroup(name string) error {
	return &wire.Error{Reason: wire.NotFound, Message: "the storage has no group " + name}
}

// group does what is asked for about a group of images. Librbd takes the snapshots of its images at the same moment: it
// has their writers wait.
func (s *server) group(r *wire.Request, progress func(float64)) (out wire.Response, err error) {
	if !strings.HasPrefix(r.Group, "grp-") || !driver.IsMade(r.Group) || r.Snapshot != "" && !validSnapshot(r.Snapshot) {
		return out, noGroup(r.Group)
	}
	o, err := openPool(s.cluster, r.Pool)
	if err != nil {
		return out, err
	}
	defer o.pool.Destroy()
	defer s.turns.take(r.Pool + "/" + r.Group)()
	p := o.pool
	switch r.Op {
	case wire.GroupSnap:
		return out, s.snapshotGroup(p, r)
	case wire.GroupLook:
		out.Found, err = p.groupHas(r.Group, r.Snapshot)
		return out, err
	case wire.GroupSnapRm:
		err = rbd.GroupSnapRemove(p.IOContext, r.Group, r.Snapshot)
	case wire.GroupRevert:
		return out, s.revertGroup(p, r, progress)
	case wire.GroupRm:
		err = rbd.GroupRemove(p.IOContext, r.Group)
	}
	if errno(err) == unix.ENOENT {
		err = nil // it is gone already
	}
	return out, err
}

// groupHas reports whether a group has a complete snapshot of a name. One that is not complete is removed.
func (p *pool) groupHas(group, snapshot string) (bool, error) {
	all, err := rbd.GroupSnapList(p.IOContext, group)
	if errno(err) == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, s := range all {
		if s.Name != snapshot {
			continue
		}
		if s.State == rbd.GroupSnapStateComplete {
			return true, nil
		}
		return false, rbd.GroupSnapRemove(p.IOContext, group, snapshot)
	}
	return false, nil
}

func (s *server) snapshotGroup(p *pool, r *wire.Request) error {
	if has, err := p.groupHas(r.Group, r.Snapshot); has || err != nil {
		return err
	}
	if err := rbd.GroupCreate(p.IOContext, r.Group); err != nil && errno(err) != unix.EEXIST {
		return err
	}
	there, err := s.members(p, r)
	if err != nil {
		return err
	}
	if err := s.eachMember(r, func(of *pool, t target) error {
		if there[of.name+"/"+t.name] {
			return nil
		}
		err := rbd.GroupImageAdd(p.IOContext, r.Group, of.IOContext, t.name)
		if errno(err) == unix.EEXIST {
			return &wire.Error{Reason: wire.Conflict, Message: "the volume " + t.name + " is in another group of the storage"}
		}
		return err
	}); err != nil {
		return err
	}
	return rbd.GroupSnapCreate(p.IOContext, r.Group, r.Snapshot)
}

// members returns which volumes of a group are in the group of the storage, as POOL/IMAGE. That others have added
// images there is a conflict: a snapshot would hold them, too, and put them back.
func (s *server) members(p *pool, r *wire.Request) (map[string]bool, error) {
	known := map[string]bool{}
	for _, m := range r.Members {
		known[m.Pool+"/"+targetOf(&wire.Request{Volume: m.Volume, Image: m.Image}).name] = true
	}
	images, err := rbd.GroupImageList(p.IOContext, r.Group)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, i := range images {
		of, err := s.conn.GetPoolByID(i.PoolID)
		if err != nil {
			return nil, err
		}
		name := of + "/" + i.Name
		if !known[name] {
			return nil, &wire.Error{
				Reason: wire.Conflict, Message: "in the storage, the group also has the image " + name + ", which is not one of its " +
					"volumes; remove it from the group with 'rbd group image remove'",
			}
		}
		there[name] = true
	}
	return there, nil
}

// eachMember calls do with the volumes of a group, which must be there.
func (s *server) eachMember(r *wire.Request, do func(of *pool, t target) error) error {
	for _, m := range r.Members {
		o, err := openPool(s.cluster, m.Pool)
		if err != nil {
			return err
		}
		t := targetOf(&wire.Request{Volume: m.Volume, Image: m.Image})
		if _, err = o.pool.ready(t); err == nil {
			err = do(o.pool, t)
		}
		o.pool.Destroy()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *server) revertGroup(p *pool, r *wire.Request, progress func(float64)) error {
	if err := s.eachMember(r, func(of *pool, t target) error { return of.watched(t.name) }); err != nil {
		return err
	}
	has, err := p.groupHas(r.Group, r.Snapshot)
	if err == nil && !has {
		err = noSnapshot(r.Snapshot)
	}
	if err == nil {
		_, err = s.members(p, r)
	}
	if err != nil {
		return err
	}
	return rbd.GroupSnapRollbackWithProgress(p.IOContext, r.Group, r.Snapshot, func(done, of uint64, _ any) int {
		progress(part(done, of))
		return 0
	}, nil)
}
