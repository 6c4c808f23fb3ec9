package drivertest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
)

// catalogImage is an image of the catalog.
type catalogImage struct {
	hypervisorapi.Image
	content []byte
}

// Image returns the bytes of an image of the catalog as they were uploaded, and whether there is one.
func (d *Daemon) Image(name string) (content []byte, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, ok := d.images[name]
	return i.content, ok
}

// PutImage adds an image to the catalog, as somebody else would.
func (d *Daemon) PutImage(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.images[name] = catalogImage{Image: hypervisorapi.Image{Name: name, Kind: "disk", AddedAt: time.Now()}}
}

// SizeImage sets the size of the disk of an image of the catalog, in bytes. The daemon tells a VM of it no size
// unless the VM asks for one.
func (d *Daemon) SizeImage(name string, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.images[name]
	i.VirtualSizeBytes = bytes
	d.images[name] = i
}

// sizeOf returns the size of a VM's system disk in GiB.
func (d *Daemon) sizeOf(vm *hypervisorapi.VM) int {
	if vm.DiskGib > 0 {
		return vm.DiskGib
	}
	return int((d.images[vm.Image].VirtualSizeBytes + 1<<30 - 1) >> 30)
}

func (d *Daemon) getImage(r *http.Request, _ string) (int, any) {
	i, ok := d.images[r.PathValue("name")]
	if !ok {
		return http.StatusNotFound, errorBody(http.StatusNotFound, "there is no image %s", r.PathValue("name"))
	}
	return http.StatusOK, i.Image
}

func (d *Daemon) uploadImage(r *http.Request, _ string) (int, any) {
	d.mu.Unlock() // bodies come slowly
	content, err := io.ReadAll(r.Body)
	d.mu.Lock()
	name := r.PathValue("name")
	if _, ok := d.images[name]; ok {
		return http.StatusConflict, errorBody(http.StatusConflict, "there is an image named %s already", name)
	}
	if err != nil {
		return http.StatusBadRequest, errorBody(http.StatusBadRequest, "the image is incomplete")
	}
	sum := sha256.Sum256(content)
	d.images[name] = catalogImage{content: content, Image: hypervisorapi.Image{
		Name: name, Kind: "disk", Source: "uploaded", Sha256: hex.EncodeToString(sum[:]), SizeBytes: int64(len(content)),
		VirtualSizeBytes: int64(len(content)), AddedAt: time.Now(),
	}}
	return http.StatusAccepted, d.succeeded("image.add", name)
}

func (d *Daemon) resizeImage(r *http.Request, _ string) (int, any) {
	name := r.PathValue("name")
	i, ok := d.images[name]
	if !ok {
		return http.StatusNotFound, errorBody(http.StatusNotFound, "there is no image %s", name)
	}
	var body hypervisorapi.ImageResize
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return http.StatusBadRequest, errorBody(http.StatusBadRequest, "the body is not valid")
	}
	i.VirtualSizeBytes = body.SizeBytes
	d.images[name] = i
	return http.StatusAccepted, d.succeeded("image.resize", name)
}

func (d *Daemon) succeeded(kind, image string) hypervisorapi.Operation {
	now := time.Now()
	op := hypervisorapi.Operation{
		Id: uuid.NewString(), Kind: kind, State: hypervisorapi.OperationStateSucceeded, Progress: 1, Image: &image,
		CreatedAt: now, FinishedAt: &now,
	}
	d.ops[op.Id] = op
	return op
}

func (d *Daemon) removeImage(r *http.Request, _ string) (int, any) {
	name := r.PathValue("name")
	if _, ok := d.images[name]; !ok {
		return http.StatusNotFound, errorBody(http.StatusNotFound, "there is no image %s", name)
	}
	delete(d.images, name)
	return http.StatusNoContent, nil
}

func (d *Daemon) cleanImages(*http.Request, string) (int, any) {
	return http.StatusOK, hypervisorapi.Cleaned{}
}

// Eject empties the drive of a VM, as somebody else would.
func (d *Daemon) Eject(name string) {
	d.Change(name, func(vm *hypervisorapi.VM) { vm.Cd = nil })
}

// insertCD puts an image into the drive of a VM.
func (d *Daemon) insertCD(r *http.Request, tenant string) (int, any) {
	var spec hypervisorapi.CDSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		return 400, errorBody(400, "%v", err)
	}
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		if _, ok := d.images[spec.Image]; !ok {
			return 400, errorBody(400, "image: there is no image %s", spec.Image)
		}
		vm.Cd, vm.Generation = &hypervisorapi.CD{Image: spec.Image}, vm.Generation+1
		return 200, *vm
	})
}

// ejectCD empties the drive of a VM.
func (d *Daemon) ejectCD(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) {
		vm.Cd, vm.Generation = nil, vm.Generation+1
		return 200, *vm
	})
}
