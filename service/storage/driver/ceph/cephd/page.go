//go:build ceph

package cephd

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/wire"
)

// The parts of RBD's format 2 that pages are read by. librbd's own calls return the names of all images
// at once, and take some requests to the cluster to open each.
const (
	directory    = "rbd_directory" // object whose map has a key for each image's name
	namePrefix   = "name_"
	headerPrefix = "rbd_header." // object of an image, by its id, whose map describes it
	sizeKey      = "size"
	createdKey   = "create_timestamp"
	metaPrefix   = "metadata_"
	parentKey    = "parent" // of clones
)

// lookAtOnce is how many images of a page are read at once.
const lookAtOnce = 8

// listed is an image in a pool's list.
type listed struct{ name, id string }

// page returns images in the order of their names.
func (p *pool) page(r *wire.Request) (out wire.Response, err error) {
	var images []listed
	after := ""
	if r.After != "" {
		after = namePrefix + r.After
	}
	err = p.ListOmapValues(directory, after, namePrefix, wire.PageSize, func(key string, value []byte) {
		images = append(images, listed{strings.TrimPrefix(key, namePrefix), text(value)})
	})
	if err != nil && errno(err) != unix.ENOENT { // a pool without images has no list
		return out, err
	}
	found := make([]*wire.Image, len(images))
	problems := make([]error, len(images))
	slots := make(chan struct{}, lookAtOnce)
	var work sync.WaitGroup
	for i, image := range images {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			problems[i] = routine.Call(nil, "image of a page", func() (err error) {
				found[i], err = p.peek(image)
				return err
			})
		})
	}
	work.Wait()
	if err := errors.Join(problems...); err != nil {
		return out, err
	}
	for _, image := range found {
		if image != nil {
			out.Images = append(out.Images, *image)
		}
	}
	if len(images) == wire.PageSize {
		out.Next = images[len(images)-1].name
	}
	return out, nil
}

// peek returns an image of the list, or nil if callers must not see it.
func (p *pool) peek(l listed) (*wire.Image, error) {
	image, err := p.glance(l)
	if err == nil && (image.State == wire.Deleted || image.Clone) {
		image, err = p.look(l.name) // it tells of snapshots and parents, too
	}
	if err == nil {
		return &image, nil
	}
	switch reason := reasonOf(err).Reason; {
	case reason == wire.Silent || reason == wire.Refused:
		return nil, err
	case reason == wire.NotFound && driver.IsMade(l.name):
		return nil, nil // it was deleted meanwhile, or is what an attempt has left
	}
	return &wire.Image{Name: l.name, State: wire.Damaged}, nil
}

// glance reads what lists show of an image.
func (p *pool) glance(l listed) (image wire.Image, err error) {
	op := rados.CreateReadOp()
	defer op.Release()
	texts := []string{mark(l.name), iopsKey, bpsKey}
	keys := []string{sizeKey, createdKey, parentKey}
	for _, key := range texts {
		keys = append(keys, metaPrefix+key)
	}
	step := op.GetOmapValuesByKeys(keys)
	if err := op.Operate(p.IOContext, headerPrefix+l.id, rados.OperationNoFlag); errno(err) == unix.ENOENT {
		return image, noVolume(l.name)
	} else if err != nil {
		return image, err
	}
	values := map[string][]byte{}
	for {
		pair, err := step.Next()
		if err != nil {
			return image, err
		}
		if pair == nil {
			break
		}
		values[pair.Key] = pair.Value
	}
	const wordSize = 4
	if len(values[sizeKey]) != 2*wordSize {
		return image, errors.New("the image has no size")
	}
	image = wire.Image{Name: l.name, Size: int64(binary.LittleEndian.Uint64(values[sizeKey]))}
	if created := values[createdKey]; len(created) == 2*wordSize {
		seconds, rest := binary.LittleEndian.Uint32(created), binary.LittleEndian.Uint32(created[wordSize:])
		image.CreatedAt = time.Unix(int64(seconds), int64(rest)).UTC()
	}
	metadata := map[string]string{}
	for _, key := range texts {
		metadata[key] = string(values[metaPrefix+key])
	}
	interpret(&image, metadata)
	image.Clone = len(values[parentKey]) > 0
	return image, nil
}

// text reads a text after its length, as Ceph writes it.
func text(value []byte) string {
	const lengthSize = 4
	if len(value) < lengthSize || uint64(len(value)-lengthSize) != uint64(binary.LittleEndian.Uint32(value)) {
		return ""
	}
	return string(value[lengthSize:])
}
