package drivertest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
)

// diskSize is the size of a VM's disk here, in bytes, and clusterSize what changes are noted by.
const (
	diskSize    = 8 << 20
	clusterSize = 64 << 10
)

// disk is the disk of a VM.
type disk struct {
	content     []byte
	changes     []int64           // the clusters that were written, in order
	checkpoints map[string]moment // by their ids
}

// moment is a checkpoint: how many changes had been made before.
type moment struct {
	consumer string
	changes  int
}

// transfer is an open transfer.
type transfer struct {
	hypervisorapi.Transfer
	consumer string
	since    string
	content  []byte // as of the moment, or what was written
	moment   moment
	ranges   []hypervisorapi.Range
	over     bool
}

func (d *Daemon) disk(vm string) *disk {
	if d.disks[vm] == nil {
		d.disks[vm] = &disk{content: make([]byte, diskSize), checkpoints: map[string]moment{}}
	}
	return d.disks[vm]
}

// Write writes to the disk of a VM, as its guest does. A disk that is too small for that grows.
func (d *Daemon) Write(name string, offset int64, data []byte) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, vm := range d.vms {
		if vm.Name != name {
			continue
		}
		on := d.disk(vm.Id)
		if end := offset + int64(len(data)); end > int64(len(on.content)) {
			on.content = append(on.content, make([]byte, end-int64(len(on.content)))...)
		}
		copy(on.content[offset:], data)
		for at := offset / clusterSize; at*clusterSize < offset+int64(len(data)); at++ {
			on.changes = append(on.changes, at)
		}
		return
	}
	d.t.Errorf("the daemon has no VM %s", name)
}

// Disk returns what the disk of a VM holds.
func (d *Daemon) Disk(name string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, vm := range d.vms {
		if vm.Name == name {
			return bytes.Clone(d.disk(vm.Id).content)
		}
	}
	return nil
}

// Interrupt ends all transfers, as other work on the VMs does.
func (d *Daemon) Interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.transfers {
		t.over = true
	}
}

func over() (int, any) {
	e := errorBody(http.StatusConflict, "the transfer is over: other work on the VM was asked for")
	e.Code = "transfer_over"
	return http.StatusConflict, e
}

func (d *Daemon) openTransfer(r *http.Request, tenant string) (int, any) {
	return d.on(r, tenant, func(vm *hypervisorapi.VM) (int, any) { return d.openTransferOf(r, vm) })
}

func (d *Daemon) openTransferOf(r *http.Request, vm *hypervisorapi.VM) (int, any) {
	var spec hypervisorapi.TransferSpec
	_ = json.NewDecoder(r.Body).Decode(&spec) // CheckRequest has checked it
	on := d.disk(vm.Id)
	t := &transfer{Transfer: hypervisorapi.Transfer{
		Id: uuid.NewString(), VmId: vm.Id, Direction: spec.Direction, SizeBytes: int64(len(on.content)),
		Consistency: "stopped",
	}}
	if spec.Direction == hypervisorapi.TransferDirectionWrite {
		if vm.State != "stopped" && vm.State != "failed" {
			return http.StatusConflict, errorBody(http.StatusConflict, "the VM is %s", vm.State)
		}
		if spec.SizeBytes != nil {
			t.SizeBytes = *spec.SizeBytes
		}
		t.content = make([]byte, t.SizeBytes)
	} else {
		t.content = bytes.Clone(on.content)
		if vm.State == "running" {
			t.Consistency = "crash"
			if d.guest != nil {
				t.Consistency = "filesystem"
			}
		}
		d.readFrom(on, t, spec)
	}
	for _, other := range d.transfers {
		if other.VmId == vm.Id {
			other.over = true
		}
	}
	d.transfers[t.Id] = t
	return http.StatusCreated, t.Transfer
}

// readFrom sets what a reader has to read.
func (d *Daemon) readFrom(on *disk, t *transfer, spec hypervisorapi.TransferSpec) {
	dirty := map[int64]bool{}
	if spec.Consumer != nil {
		t.consumer, t.Checkpoint = *spec.Consumer, &t.Id
		t.moment = moment{t.consumer, len(on.changes)}
	}
	if spec.Since != nil {
		if from, ok := on.checkpoints[*spec.Since]; ok && from.consumer == t.consumer {
			t.since, t.Changed = *spec.Since, true
			for _, at := range on.changes[from.changes:] {
				dirty[at] = true
			}
		}
	}
	t.ranges = []hypervisorapi.Range{}
	zeros := make([]byte, clusterSize)
	for at := int64(0); at < int64(len(t.content))/clusterSize; at++ {
		part := t.content[at*clusterSize:][:clusterSize]
		if t.Changed && dirty[at] || !t.Changed && !bytes.Equal(part, zeros) {
			t.ranges = append(t.ranges, hypervisorapi.Range{Offset: at * clusterSize, Length: clusterSize})
		}
	}
}

func (d *Daemon) transfer(r *http.Request, tenant string) *transfer {
	t := d.transfers[r.PathValue("transfer")]
	if t == nil || tenant != "" && d.vms[t.VmId] != nil && d.vms[t.VmId].Tenant != tenant {
		return nil
	}
	return t
}

// onTransfer answers a request for an open transfer.
func (d *Daemon) onTransfer(
	do func(r *http.Request, t *transfer) (int, any),
) func(r *http.Request, tenant string) (int, any) {
	return func(r *http.Request, tenant string) (int, any) {
		t := d.transfer(r, tenant)
		switch {
		case t == nil:
			return http.StatusNotFound, errorBody(http.StatusNotFound, "there is no such transfer")
		case t.over || d.vms[t.VmId] == nil:
			return over()
		}
		return do(r, t)
	}
}

func number(r *http.Request, name string) int64 {
	n, _ := strconv.ParseInt(r.URL.Query().Get(name), 10, 64) // CheckRequest has checked it
	return n
}

func (d *Daemon) rangesOf(r *http.Request, t *transfer) (int, any) {
	out := []hypervisorapi.Range{}
	for _, one := range t.ranges {
		if one.Offset >= number(r, "from") && int64(len(out)) < number(r, "limit") {
			out = append(out, one)
		}
	}
	return http.StatusOK, out
}

// raw is an answer that is not JSON.
type raw []byte

func (d *Daemon) readData(r *http.Request, t *transfer) (int, any) {
	from, n := number(r, "offset"), number(r, "length")
	if from+n > int64(len(t.content)) {
		return http.StatusBadRequest, errorBody(http.StatusBadRequest, "outside of the disk")
	}
	return http.StatusOK, raw(t.content[from : from+n])
}

func (d *Daemon) writeData(r *http.Request, t *transfer) (int, any) {
	data, err := io.ReadAll(r.Body)
	from := number(r, "offset")
	if err != nil || from+int64(len(data)) > int64(len(t.content)) {
		return http.StatusBadRequest, errorBody(http.StatusBadRequest, "outside of the disk")
	}
	copy(t.content[from:], data)
	return http.StatusNoContent, nil
}

func (d *Daemon) finishTransfer(_ *http.Request, t *transfer) (int, any) {
	t.over = true
	on := d.disk(t.VmId)
	switch {
	case t.Direction == hypervisorapi.TransferDirectionWrite:
		on.content, on.checkpoints = t.content, map[string]moment{}
	case t.consumer != "":
		for id, m := range on.checkpoints {
			if m.consumer == t.consumer {
				delete(on.checkpoints, id)
			}
		}
		on.checkpoints[t.Id] = t.moment
	}
	return http.StatusOK, t.Transfer
}

func (d *Daemon) abortTransfer(r *http.Request, tenant string) (int, any) {
	t := d.transfer(r, tenant)
	if t == nil {
		return http.StatusNotFound, errorBody(http.StatusNotFound, "there is no such transfer")
	}
	t.over = true
	return http.StatusNoContent, nil
}
