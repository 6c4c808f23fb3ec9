//go:build ceph

package cephd

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ceph/go-ceph/rbd"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// scopes are what may be mirrored of a pool.
var scopes = map[string]rbd.MirrorMode{
	"image": rbd.MirrorModeImage, "pool": rbd.MirrorModePool, "disabled": rbd.MirrorModeDisabled,
}

// modes are the ways in which images are mirrored.
var modes = map[string]rbd.ImageMirrorMode{
	"snapshot": rbd.ImageMirrorModeSnapshot, "journal": rbd.ImageMirrorModeJournal,
}

// keyOf returns the key of a value, which it has.
func keyOf[V comparable](all map[string]V, v V) string {
	for key, value := range all {
		if value == v {
			return key
		}
	}
	return ""
}

// mirror answers a request about mirrors.
func (s *server) mirror(r *wire.Request, p *pool, progress func(float64)) (out wire.Response, err error) {
	switch r.Op {
	case wire.MirrorPool:
		return p.scope(r)
	case wire.MirrorPeer:
		return out, p.addPeer(r)
	case wire.MirrorPage:
		return p.mirrors(r)
	}
	t := targetOf(r)
	if r.Op == wire.MirrorLook {
		return p.mirrorOf(s.cluster, t, r.Ours)
	}
	if _, err := p.ready(t); err != nil {
		return out, err
	}
	switch r.Op {
	case wire.MirrorOn:
		return out, p.mirrorOn(t, r.Mode)
	case wire.MirrorOff:
		return out, p.mirrorOff(t)
	case wire.MirrorSnap:
		return out, p.send(t)
	case wire.Promote:
		return out, p.promote(t, r.Force)
	case wire.Demote:
		return out, p.demote(s.cluster, t, r)
	case wire.Resync:
		return out, p.resync(t)
	}
	return p.digest(r, t, progress)
}

// scope returns what of a pool is mirrored, which it first becomes if the request says so.
func (p *pool) scope(r *wire.Request) (out wire.Response, err error) {
	if r.Scope != "" {
		mode, ok := scopes[r.Scope]
		if !ok {
			return out, &wire.Error{Reason: wire.Invalid, Message: "a pool is not mirrored by " + r.Scope}
		}
		err := rbd.SetMirrorMode(p.IOContext, mode)
		if errno(err) == unix.EINVAL || errno(err) == unix.EBUSY {
			return out, &wire.Error{
				Reason: wire.Conflict, Message: "the pool still has images that are mirrored, or peers", Cause: err.Error(),
			}
		}
		if err != nil {
			return out, err
		}
	}
	mode, err := rbd.GetMirrorMode(p.IOContext)
	out.Scope = keyOf(scopes, mode)
	return out, err
}

// resync has the content of an image thrown away, and copied again. Clones would lose what they share with it.
func (p *pool) resync(t target) error {
	clones, err := p.clones(t.name)
	if err != nil {
		return err
	}
	if len(clones) > 0 {
		return &wire.Error{
			Reason:  wire.Conflict,
			Message: "there are clones of the image: " + strings.Join(clones, ", ") + "; flatten or delete them",
		}
	}
	return p.with(t.name, true, (*rbd.Image).MirrorResync)
}

// clones returns the clones of all snapshots of an image.
func (p *pool) clones(name string) (all []string, err error) {
	err = p.with(name, false, func(image *rbd.Image) error {
		snapshots, err := image.GetSnapshotNames()
		for i := 0; i < len(snapshots) && err == nil; i++ {
			if err = image.SetSnapByID(snapshots[i].Id); errno(err) == unix.ENOENT {
				err = nil // it was removed meanwhile
				continue
			}
			var pools, images []string
			if err == nil {
				pools, images, err = image.ListChildren()
			}
			for j := range images {
				all = append(all, pools[j]+"/"+images[j])
			}
		}
		return err
	})
	return all, err
}

// fsid matches what identifies a cluster.
var fsid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// addPeer makes the cluster that a token is of a peer. If the pool has a peer, nothing changes: Pacific takes one only.
func (p *pool) addPeer(r *wire.Request) error {
	peers, err := rbd.ListMirrorPeerSite(p.IOContext)
	if err != nil {
		return err
	}
	for _, known := range peers {
		// Clusters are called by their fsid unless somebody has named them.
		if fsid.MatchString(known.SiteName) && known.SiteName != r.Peer {
			return &wire.Error{Reason: wire.Conflict, Message: "the pool has another peer: the cluster " + known.SiteName}
		}
	}
	if len(peers) > 0 {
		return nil
	}
	direction := rbd.MirrorPeerDirectionRxTx
	if r.OneWay {
		direction = rbd.MirrorPeerDirectionRx
	}
	err = rbd.ImportMirrorPeerBootstrapToken(p.IOContext, direction, string(r.Token))
	if err == nil {
		return nil
	}
	e := &wire.Error{Reason: wire.Failed, Message: "the cluster does not take the peer", Cause: err.Error()}
	switch errno(err) {
	case unix.EINVAL:
		e.Reason = wire.Conflict
		e.Message = "the cluster does not take the peer: mirroring of the pool is disabled at one of the sites, the pool has " +
			"another peer, or the token is not valid"
	case unix.ENOENT:
		e.Reason, e.Message = wire.NotFound, "the peer has no pool "+p.name
	case unix.EPERM, unix.EACCES:
		e.Reason = wire.Refused
		e.Message = "the peer does not accept the token, or the gateway's client may not add peers; its capabilities, and how " +
			"to add a peer by rbd instead, are in the guide"
	case unix.ETIMEDOUT:
		e.Reason, e.Message = wire.Failed, "the peer does not answer" // the cluster itself does
	}
	return e
}

func (p *pool) mirrorOn(t target, mode string) error {
	how, ok := modes[mode]
	if !ok {
		return &wire.Error{Reason: wire.Invalid, Message: "an image is not mirrored by " + mode}
	}
	return p.with(t.name, true, func(image *rbd.Image) error {
		info, err := image.GetMirrorImageInfo()
		if err != nil {
			return err
		}
		if info.State != rbd.MirrorImageDisabled {
			if now, err := image.GetImageMirrorMode(); err != nil || now == how {
				return err
			}
			return &wire.Error{Reason: wire.Conflict, Message: "the image is mirrored already, in another way"}
		}
		if parent, err := spec(image); err != nil {
			return err
		} else if parent != "" {
			return &wire.Error{
				Reason: wire.Conflict, Message: "the image is a clone of " + parent + ", which is needed at the other site, too; " +
					"flatten the image first",
			}
		}
		return image.MirrorEnable(how)
	})
}

func (p *pool) mirrorOff(t target) error {
	return p.with(t.name, true, func(image *rbd.Image) error {
		info, err := image.GetMirrorImageInfo()
		if err != nil || info.State == rbd.MirrorImageDisabled {
			return err
		}
		if !info.Primary {
			return notPrimary
		}
		return image.MirrorDisable(false)
	})
}

// send has the copies of an image become what it is now. One with a journal sends all by itself.
func (p *pool) send(t target) error {
	return p.with(t.name, true, func(image *rbd.Image) error {
		info, err := image.GetMirrorImageInfo()
		if err != nil {
			return err
		}
		mode, err := image.GetImageMirrorMode()
		switch {
		case err != nil || mode == rbd.ImageMirrorModeJournal:
			return err
		case !info.Primary:
			return notPrimary
		}
		_, err = image.CreateMirrorSnapshot()
		return err
	})
}

var notPrimary = &wire.Error{Reason: wire.Conflict, Message: "the image is not primary at this site"}

// promote makes an image the primary one. Without force, its peer must have been demoted, and that must have arrived.
func (p *pool) promote(t target, force bool) error {
	return p.with(t.name, true, func(image *rbd.Image) error {
		info, err := image.GetMirrorImageInfo()
		if err != nil || info.Primary {
			return err
		}
		err = image.MirrorPromote(force)
		switch errno(err) {
		case unix.EBUSY:
			return &wire.Error{
				Reason: wire.Conflict, Message: "the image is primary at the other site, or its demotion has not arrived yet",
				Cause: err.Error(),
			}
		case unix.EROFS: // for a moment after a demotion
			return &wire.Error{Reason: wire.Conflict, Message: "the daemon that copies still has the image", Cause: err.Error()}
		}
		return err
	})
}

// demote makes an image one that is only copied to. Without force, no client may have it open.
func (p *pool) demote(c *cluster, t target, r *wire.Request) error {
	primary := false
	err := p.with(t.name, false, func(image *rbd.Image) error {
		info, err := image.GetMirrorImageInfo()
		if err != nil {
			return err
		}
		if primary = info.Primary; !primary || r.Force {
			return nil
		}
		return c.clients(image, r.Ours)
	})
	if err != nil || !primary {
		return err
	}
	// Ceph demotes an image and then fails to store the snapshot that says so: no site could take over.
	if err := c.roomy(p.name); err != nil {
		return err
	}
	return p.with(t.name, true, (*rbd.Image).MirrorDemote)
}

// roomy is a fault if a pool takes no more data.
func (c *cluster) roomy(pool string) error {
	raw, said, err := c.conn.MonCommand([]byte(`{"prefix":"osd dump","format":"json"}`))
	if err != nil {
		return fmt.Errorf("%s: %w", said, err)
	}
	var dump struct {
		Flags string `json:"flags"`
		Pools []struct {
			Name  string `json:"pool_name"`
			Flags string `json:"flags_names"`
		} `json:"pools"`
	}
	if err := json.Unmarshal(raw, &dump); err != nil {
		return err
	}
	full := func(flags string) bool { return slices.Contains(strings.Split(flags, ","), "full") }
	for _, one := range dump.Pools {
		if full(dump.Flags) || one.Name == pool && full(one.Flags) {
			return unix.ENOSPC
		}
	}
	return nil
}

// clients is the fault of what must not be done while clients have an image open: others than the daemons that copy it,
// and than the gateway's own helpers.
func (c *cluster) clients(image *rbd.Image, ours []string) error {
	watchers, err := image.ListWatchers()
	if err != nil {
		return err
	}
	watchers = slices.DeleteFunc(watchers, func(w rbd.ImageWatcher) bool {
		return slices.ContainsFunc(ours, func(own string) bool { return bare(own) == bare(w.Addr) })
	})
	if len(watchers) == 0 {
		return nil
	}
	if copiers, ok := c.copiers(); ok {
		return inUse(slices.DeleteFunc(watchers, func(w rbd.ImageWatcher) bool { return copiers[w.Id] }))
	}
	_, holders, err := image.ListLockers()
	// A lock that outlives its client means nothing.
	writes := slices.ContainsFunc(holders, func(l rbd.Locker) bool {
		return l.Client == "client."+strconv.FormatInt(watchers[0].Id, 10)
	})
	if err != nil || len(watchers) == 1 && !writes {
		return err // a client that does not write is taken for the daemon
	}
	return inUse(watchers)
}

// bare returns the address of a client without its protocol: v2:127.0.0.1:0/1 and 127.0.0.1:0/1 are the same client.
func bare(address string) string {
	for _, protocol := range []string{"v1:", "v2:", "any:"} {
		address = strings.TrimPrefix(address, protocol)
	}
	return address
}

// copiers returns the numbers of the clients that copy images to other sites: they have the images open that they
// copy. It reports false if the monitors do not tell, which takes all capabilities.
func (c *cluster) copiers() (map[int64]bool, bool) {
	text, err := c.command("mon dump")
	var dump struct {
		Quorum []int `json:"quorum"`
		Mons   []struct {
			Rank int    `json:"rank"`
			Name string `json:"name"`
		} `json:"mons"`
	}
	if err != nil || json.Unmarshal(text, &dump) != nil {
		return nil, false
	}
	all := map[int64]bool{}
	for _, mon := range dump.Mons {
		if !slices.Contains(dump.Quorum, mon.Rank) {
			continue // it would not answer, and has no sessions
		}
		out, _, err := c.conn.MonCommandTarget(mon.Name, [][]byte{[]byte(`{"prefix":"sessions"}`)})
		var sessions []struct {
			Entity string `json:"entity_name"`
			ID     int64  `json:"global_id"`
		}
		if err != nil || json.Unmarshal(out, &sessions) != nil {
			return nil, false
		}
		for _, s := range sessions {
			if strings.HasPrefix(s.Entity, "client.rbd-mirror") {
				all[s.ID] = true
			}
		}
	}
	return all, true
}

// mirrorOf returns a volume that is mirrored, with the snapshots by which it is.
func (p *pool) mirrorOf(c *cluster, t target, ours []string) (out wire.Response, err error) {
	if !t.valid() {
		return out, noVolume(t.name)
	}
	var m wire.Mirror
	err = p.with(t.name, false, func(image *rbd.Image) error {
		info, err := image.GetMirrorImageInfo()
		if err != nil {
			return err
		}
		if info.State == rbd.MirrorImageDisabled {
			return notMirrored(t.name)
		}
		mode, err := image.GetImageMirrorMode()
		if err != nil {
			return err
		}
		status, err := image.GetGlobalMirrorStatus()
		if err != nil && errno(err) != unix.ENOENT {
			return err
		}
		status.Info = *info
		m = describeMirror(t.name, &status, keyOf(modes, mode))
		if m.Primary {
			err := c.clients(image, ours)
			if e, ok := errors.AsType[*wire.Error](err); ok {
				m.InUse, err = e.Message, nil
			}
			if err != nil {
				return err
			}
		}
		m.Snapshots, err = p.copies(image, t.name)
		return err
	})
	if errno(err) == unix.ENOENT {
		err = noVolume(t.name)
	}
	out.Mirrors = []wire.Mirror{m}
	return out, err
}

func notMirrored(name string) error {
	return &wire.Error{Reason: wire.NotFound, Message: "the image " + name + " is not mirrored"}
}

func describeMirror(name string, status *rbd.GlobalMirrorImageStatus, mode string) wire.Mirror {
	m := wire.Mirror{
		Image: name, GlobalID: status.Info.GlobalID, Mode: mode, Primary: status.Info.Primary,
		Enabled: status.Info.State == rbd.MirrorImageEnabled,
	}
	for _, s := range status.SiteStatuses {
		site := wire.Site{Peer: s.MirrorUUID, Up: s.Up, State: s.State.String(), Description: s.Description}
		if s.LastUpdate > 0 {
			site.UpdatedAt = time.Unix(s.LastUpdate, 0).UTC()
		}
		m.Sites = append(m.Sites, site)
	}
	return m
}

// mirrors returns a page of the images of a pool that are mirrored. They are not opened. What daemons say of an image
// does not tell whether it is primary, so both are asked for.
func (p *pool) mirrors(r *wire.Request) (out wire.Response, err error) {
	page, err := rbd.MirrorImageGlobalStatusList(p.IOContext, r.After, wire.PageSize)
	if err != nil {
		return out, err
	}
	all, err := rbd.MirrorImageInfoList(p.IOContext, nil, r.After, wire.PageSize)
	if err != nil {
		return out, err
	}
	infos := map[string]rbd.MirrorImageInfoItem{}
	for _, i := range all {
		infos[i.ID] = i
	}
	for i := range page {
		known, ok := infos[page[i].ID]
		if !ok {
			continue // it was begun or ended between the two questions
		}
		page[i].Status.Info = known.Info
		out.Mirrors = append(out.Mirrors, describeMirror(page[i].Status.Name, &page[i].Status, keyOf(modes, known.Mode)))
	}
	if len(page) == wire.PageSize {
		out.Next = page[len(page)-1].ID
	}
	return out, nil
}

// block is how much of an image is read at once, in bytes.
const block = 4 << 20

// digest reads a snapshot of an image, and returns the SHA-256 of what it holds. The snapshot is one that the gateway
// took, and is read through a clone, which goes again. Without one, it is the newest complete copy of an image that is
// not primary.
func (p *pool) digest(r *wire.Request, t target, progress func(float64)) (out wire.Response, err error) {
	if r.Snap == "" {
		id, err := p.newestCopy(t.name)
		if err != nil {
			return out, err
		}
		return out, p.with(t.name, false, func(image *rbd.Image) error {
			if err := image.SetSnapByID(id); err != nil {
				return err
			}
			return readAll(image, &out, progress)
		})
	}
	if !validSnapshot(r.Snap) {
		return out, noSnapshot(r.Snap)
	}
	if err := p.with(t.name, false, func(image *rbd.Image) error {
		_, err := lookFor(image, r.Snap)
		return err
	}); err != nil {
		return out, err
	}
	if r.To == "" {
		image, err := rbd.OpenImageReadOnly(p.IOContext, t.name, r.Snap)
		if err != nil {
			return out, err
		}
		return out, errors.Join(readAll(image, &out, progress), image.Close())
	}
	clone := target{native: r.To, name: r.To}
	if !clone.valid() {
		return out, noVolume(r.To)
	}
	if found, err := p.look(r.To); err == nil && found.State != wire.Building {
		return out, taken(r.To)
	}
	if err := p.remove(r.To); err != nil { // what an attempt has left
		return out, err
	}
	options := rbd.NewRbdImageOptions()
	defer options.Destroy()
	if err := options.SetUint64(rbd.ImageOptionCloneFormat, 2); err != nil {
		return out, err
	}
	if err := rbd.CloneImage(p.IOContext, t.name, r.Snap, p.IOContext, r.To, options); err != nil {
		return out, err
	}
	err = p.with(r.To, false, func(image *rbd.Image) error { return readAll(image, &out, progress) })
	return out, errors.Join(err, p.remove(r.To))
}

// newestCopy returns the newest complete snapshot by which an image is mirrored.
func (p *pool) newestCopy(name string) (id uint64, err error) {
	err = p.with(name, false, func(image *rbd.Image) error {
		all, err := p.copies(image, name)
		for _, s := range all {
			if s.Complete {
				id = max(id, s.ID)
			}
		}
		return err
	})
	if err == nil && id == 0 {
		err = &wire.Error{Reason: wire.Conflict, Message: "no copy of the image is complete"}
	}
	return id, err
}

// readAll reads all of an image that is not zeros, and digests it.
func readAll(image *rbd.Image, out *wire.Response, progress func(float64)) error {
	size, err := image.GetSize()
	if err != nil {
		return err
	}
	sum, buffer, next := sha256.New(), make([]byte, block), uint64(0)
	// Offsets are multiples of block, so that the digest does not depend on what the storage tells of holes.
	take := func(offset uint64) error {
		n, err := image.ReadAt(buffer[:min(block, size-offset)], int64(offset))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		out.Read += int64(n)
		if content := buffer[:n]; !isZero(content) {
			sum.Write(binary.BigEndian.AppendUint64(nil, offset))
			sum.Write(content)
		}
		progress(part(offset, size))
		return nil
	}
	var failed error
	err = image.DiffIterate(rbd.DiffIterateConfig{
		Length: size, IncludeParent: rbd.IncludeParent, WholeObject: rbd.EnableWholeObject,
		Callback: func(offset, length uint64, exists int, _ any) int {
			if exists == 0 {
				return 0
			}
			for at := max(next, offset/block*block); at < offset+length && failed == nil; at += block {
				failed, next = take(at), at+block
			}
			if failed != nil {
				return -int(unix.EIO)
			}
			return 0
		},
	})
	if failed != nil {
		return failed
	}
	out.Digest = hex.EncodeToString(sum.Sum(nil))
	return err
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
