//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// systemNode is the system disk's node name in QEMU.
const systemNode = "system"

// Names of jobs. There is at most one of each, since only one caller at a time works on a VM.
const (
	copyJob     = "mainstay-copy"
	snapshotJob = "mainstay-snapshot"
	copyTarget  = "mainstay-target"
)

// OpenDisks runs a QEMU that has only the VM's own disks that a guest can write to.
func (b *Backend) OpenDisks(ctx context.Context, s *backend.Spec) (backend.Disks, error) {
	only := *s
	only.Disks = slices.DeleteFunc(slices.Clone(s.Disks), func(d backend.Disk) bool {
		return d.ReadOnly || d.ID == backend.ServedDisk
	})
	m, err := b.machine(
		&backend.Spec{
			ID:        s.ID,
			Name:      s.Name,
			Folder:    s.Folder,
			VCPUs:     1,
			MemoryMiB: 1,
			Disks:     only.Disks,
			UID:       s.UID,
			GID:       s.GID,
		},
		"tcg",
	)
	if err != nil {
		return nil, err
	}
	m.Type, m.Screen, m.Agent = None, false, false
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	p, monitor, err := Launch(ctx, b.o.Program, m)
	if err != nil {
		return nil, err
	}
	return &opened{newInstance(s, p, monitor)}, nil
}

// opened is a VM of which only the disks are open.
type opened struct{ *Instance }

// closeLimit is the timeout for a QEMU from OpenDisks to flush its data and quit.
const closeLimit = 30 * time.Second

// Close quits QEMU, which flushes its data first.
func (o *opened) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	err := o.monitor.Quit(ctx)
	if err == nil {
		select {
		case <-o.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil && !errors.Is(err, qmp.ErrLost) {
		_ = o.process.Kill() // it does not respond
	}
	<-o.done
	return o.Instance.Close()
}

// StartFrom starts a VM paused and loads the snapshot before resuming it.
func (b *Backend) StartFrom(ctx context.Context, s *backend.Spec, snapshot string) (backend.Instance, error) {
	i, err := b.start(ctx, s, true)
	if err != nil {
		return nil, err
	}
	if err := i.RevertFull(ctx, snapshot); err != nil {
		_ = i.process.Kill() // it never ran
		<-i.done
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

// Recover ends the jobs of a killed daemon and closes the target of its copy. Saving memory cannot
// be cancelled, so Recover waits for it.
func (i *Instance) Recover(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, backend.MemoryLimit(i.memoryMiB), qmp.ErrSilent)
	defer cancel()
	for _, id := range []string{snapshotJob, copyJob} {
		if err := i.monitor.EndJob(ctx, id); err != nil {
			return refusal(err, "what was begun before the daemon ended is not over")
		}
	}
	i.dropTarget(ctx)
	return i.EndExport(ctx)
}

// Snapshot creates an internal snapshot in each disk, in one transaction.
func (i *Instance) Snapshot(ctx context.Context, name string, full bool) (int64, error) {
	if !full {
		nodes, err := i.diskNodes(ctx)
		actions := []any{}
		for _, n := range nodes {
			actions = append(actions, map[string]any{
				"type": "blockdev-snapshot-internal-sync", "data": map[string]any{"device": n.Name, "name": name},
			})
		}
		if err == nil {
			err = i.monitor.Execute(ctx, "transaction", map[string]any{"actions": actions}, nil)
		}
		return 0, refusal(err, "the snapshot was not made")
	}
	before, err := i.monitor.Status(ctx)
	if err != nil {
		return 0, refusal(err, "the snapshot was not made")
	}
	err = i.memoryJob(ctx, "snapshot-save", name)
	if err != nil && before.Running {
		err = errors.Join(err, i.monitor.Cont(ctx)) // QEMU may have left the guest halted
	}
	if err != nil {
		return 0, refusal(err, "the snapshot was not made")
	}
	return i.memoryOf(ctx, name)
}

// inner is an internal snapshot of a disk.
type inner struct {
	Name string `json:"name"`
	Size int64  `json:"vm-state-size"`
}

// diskNode is the node of a disk that the guest can write to.
type diskNode struct {
	Name      string
	Snapshots []inner
}

// diskNodes returns the nodes of all disks that the guest can write to, the system disk's first.
func (i *Instance) diskNodes(ctx context.Context) (all []diskNode, err error) {
	var nodes []struct {
		Name     string `json:"node-name"`
		ReadOnly bool   `json:"ro"`
		Image    struct {
			Snapshots []inner `json:"snapshots"`
		} `json:"image"`
	}
	if err := i.monitor.Execute(ctx, "query-named-block-nodes", nil, &nodes); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		switch one := (diskNode{n.Name, n.Image.Snapshots}); {
		case n.Name == systemNode:
			all = slices.Insert(all, 0, one)
		case strings.HasPrefix(n.Name, backend.DataPrefix) && !strings.HasSuffix(n.Name, fileSuffix) && !n.ReadOnly:
			all = append(all, one)
		}
	}
	return all, nil
}

func (n *diskNode) find(snapshot string) (s inner, ok bool) {
	at := slices.IndexFunc(n.Snapshots, func(s inner) bool { return s.Name == snapshot })
	if at < 0 {
		return inner{}, false
	}
	return n.Snapshots[at], true
}

// memoryOf returns the size of a snapshot's memory in bytes.
func (i *Instance) memoryOf(ctx context.Context, name string) (int64, error) {
	all, err := i.diskNodes(ctx)
	if err != nil {
		return 0, refusal(err, "the snapshot cannot be looked at")
	}
	for _, n := range all {
		if s, ok := n.find(name); ok && n.Name == systemNode {
			return s.Size, nil
		}
	}
	return 0, fmt.Errorf("QEMU has no snapshot %s after making it", name)
}

// DeleteSnapshot removes a snapshot of either kind from all disks that have it.
func (i *Instance) DeleteSnapshot(ctx context.Context, name string) error {
	all, err := i.diskNodes(ctx)
	for _, n := range all {
		if _, ok := n.find(name); ok && err == nil {
			err = i.monitor.Execute(
				ctx, "blockdev-snapshot-delete-internal-sync", map[string]any{"device": n.Name, "name": name}, nil,
			)
		}
	}
	return refusal(err, "the snapshot was not removed")
}

// RevertFull loads a snapshot's disk and memory and resumes the VM. If that fails, the VM stays
// paused, since its memory and disk may not match.
func (i *Instance) RevertFull(ctx context.Context, name string) error {
	if err := i.monitor.Stop(ctx); err != nil {
		return refusal(err, "the snapshot was not loaded")
	}
	err := i.memoryJob(ctx, "snapshot-load", name)
	if err == nil {
		err = i.monitor.Cont(ctx)
	}
	return refusal(err, "the snapshot was not loaded")
}

// memoryJob runs a job that saves or loads a VM's memory, until its end.
func (i *Instance) memoryJob(ctx context.Context, command, snapshot string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, backend.MemoryLimit(i.memoryMiB), qmp.ErrSilent)
	defer cancel()
	// A job that a killed daemon left would be in the way.
	if err := i.monitor.EndJob(ctx, snapshotJob); err != nil {
		return err
	}
	nodes, err := i.diskNodes(ctx)
	if err != nil {
		return err
	}
	devices := []string{}
	for _, n := range nodes {
		devices = append(devices, n.Name)
	}
	arguments := map[string]any{
		"job-id":  snapshotJob,
		"tag":     snapshot,
		"vmstate": systemNode,
		"devices": devices,
	}
	if err := i.monitor.Execute(ctx, command, arguments, nil); err != nil {
		return err
	}
	return i.monitor.WaitJob(ctx, snapshotJob, nil)
}

// cleanupLimit is the total timeout for cleaning up after a copy. A caller who cancels the copy
// waits this long.
const cleanupLimit = 15 * time.Second

// Copy makes QEMU write the disk, as of one moment, to another file, while the guest keeps running.
func (i *Instance) Copy(ctx context.Context, c backend.DiskCopy, progress func(float64)) (err error) {
	// A job that a killed daemon left would be in the way.
	if err := i.monitor.EndJob(ctx, copyJob); err != nil {
		return refusal(err, "the copy could not begin")
	}
	i.dropTarget(ctx)
	if err := i.monitor.Execute(ctx, "blockdev-add", map[string]any{
		"node-name": copyTarget, "driver": "qcow2", "backing": nil, "discard": "unmap", "detect-zeroes": "unmap",
		"file": map[string]any{"driver": "file", "filename": c.Target},
	}, nil); err != nil {
		return refusal(err, "the copy's file cannot be opened")
	}
	defer func() {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
		defer cancel()
		if err != nil {
			// Errors do not matter: the next copy cleans up again, and nobody uses the bitmap of a
			// failed copy.
			_ = i.monitor.EndJob(cleanup, copyJob)
			if c.Note != "" {
				_ = i.dropBitmap(cleanup, c.Note)
			}
		}
		i.dropTarget(cleanup)
	}()
	backup := map[string]any{
		"job-id":       copyJob,
		"device":       systemNode,
		"target":       copyTarget,
		"sync":         "full",
		"auto-dismiss": false,
	}
	if c.Since != "" {
		backup["sync"], backup["bitmap"], backup["bitmap-mode"] = "bitmap", c.Since, "never"
	}
	actions := []any{map[string]any{"type": "blockdev-backup", "data": backup}}
	if c.Note != "" {
		actions = append(
			[]any{
				map[string]any{
					"type": "block-dirty-bitmap-add",
					"data": map[string]any{"node": systemNode, "name": c.Note, "persistent": true},
				},
			},
			actions...)
	}
	err = i.monitor.Execute(ctx, "transaction", map[string]any{"actions": actions}, nil)
	if c.Begun != nil {
		c.Begun()
	}
	if err != nil {
		return refusal(err, "the copy could not begin")
	}
	// WaitJob polls the progress, so an unresponsive QEMU is noticed.
	err = i.monitor.WaitJob(ctx, copyJob, func(current, total int64) {
		if total > 0 && progress != nil {
			progress(float64(current) / float64(total))
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return refusal(err, "the disk was not copied")
}

// dropTarget closes the file of a copy. Errors do not matter: the next copy does it again.
func (i *Instance) dropTarget(ctx context.Context) { _ = i.dropNode(ctx, copyTarget) }

// dropNode removes a node, if there is one. It stays busy for a moment after a job or an export.
func (i *Instance) dropNode(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := i.monitor.Execute(ctx, "blockdev-del", map[string]any{"node-name": name}, nil)
		refused := (*qmp.Error)(nil)
		if err == nil || !errors.As(err, &refused) {
			return err
		}
		if !i.hasNode(ctx, name) {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (i *Instance) hasNode(ctx context.Context, name string) bool {
	var nodes []struct {
		Name string `json:"node-name"`
	}
	err := i.monitor.Execute(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes)
	return err == nil && slices.ContainsFunc(nodes, func(n struct {
		Name string `json:"node-name"`
	}) bool {
		return n.Name == name
	})
}

// bitmap is a bitmap as QEMU reports it.
type bitmap struct {
	Name string `json:"name"`
	// Inconsistent bitmaps were in use when QEMU was killed: they miss changes.
	Inconsistent bool `json:"inconsistent"`
}

func (i *Instance) bitmaps(ctx context.Context) ([]bitmap, error) {
	var nodes []struct {
		Name    string   `json:"node-name"`
		Bitmaps []bitmap `json:"dirty-bitmaps"`
	}
	if err := i.monitor.Execute(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Name == systemNode {
			return n.Bitmaps, nil
		}
	}
	return nil, nil
}

// HasBitmap reports whether the system disk has a consistent bitmap of this name.
func (i *Instance) HasBitmap(ctx context.Context, name string) (bool, error) {
	all, err := i.bitmaps(ctx)
	return slices.ContainsFunc(
		all,
		func(b bitmap) bool { return b.Name == name && !b.Inconsistent },
	), refusal(err, "the notes of what changed cannot be read")
}

// Bitmaps returns the names of the bitmaps of the system disk.
func (i *Instance) Bitmaps(ctx context.Context) (names []string, err error) {
	all, err := i.bitmaps(ctx)
	for _, b := range all {
		if b.Name != "" {
			names = append(names, b.Name)
		}
	}
	return names, refusal(err, "the notes of what changed cannot be read")
}

// DropBitmaps removes the bitmaps of the system disk whose names begin with prefix, except those to
// keep.
func (i *Instance) DropBitmaps(ctx context.Context, prefix string, keep ...string) error {
	// An interrupted copy may still be running, with its own unnamed bitmaps.
	if err := i.monitor.EndJob(ctx, copyJob); err != nil {
		return refusal(err, "an earlier copy is not over")
	}
	all, err := i.bitmaps(ctx)
	if err != nil {
		return refusal(err, "the notes of what changed cannot be read")
	}
	var errs []error
	for _, b := range all {
		if b.Name != "" && strings.HasPrefix(b.Name, prefix) && !slices.Contains(keep, b.Name) {
			errs = append(errs, i.dropBitmap(ctx, b.Name))
		}
	}
	return errors.Join(errs...)
}

func (i *Instance) dropBitmap(ctx context.Context, name string) error {
	return i.monitor.Execute(ctx, "block-dirty-bitmap-remove", map[string]any{"node": systemNode, "name": name}, nil)
}

// Resize grows the disk to size bytes. The guest sees the new size immediately.
func (i *Instance) Resize(ctx context.Context, size int64) error {
	// QEMU does not resize a disk that has an inconsistent bitmap, which a full host disk can cause.
	all, err := i.bitmaps(ctx)
	for _, b := range all {
		if b.Inconsistent && err == nil {
			err = i.dropBitmap(ctx, b.Name)
		}
	}
	if err != nil {
		return refusal(err, "the disk keeps its size")
	}
	err = i.monitor.Execute(ctx, "block_resize", map[string]any{"node-name": systemNode, "size": size}, nil)
	return refusal(err, "the disk keeps its size")
}

// refusal returns QEMU's error as a fault, since it is usually about the state of the VM. So is a
// monitor that does not answer.
func refusal(err error, what string) error {
	refused, failed := (*qmp.Error)(nil), (*qmp.JobError)(nil)
	switch {
	case err != nil && strings.Contains(err.Error(), "No space left on device"):
		return fault.Wrap(fault.StorageFailed, err, "%s: the host's storage is full", what)
	case errors.As(err, &refused):
		return fault.Wrap(fault.Conflict, err, "%s: %s", what, refused.Description)
	case errors.As(err, &failed):
		return fault.Wrap(fault.Conflict, err, "%s: %s", what, failed.Description)
	case errors.Is(err, qmp.ErrSilent), errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(
			fault.Unavailable, err,
			"%s: the VM's process does not answer; if it stays so, kill the VM and start it again", what,
		).WithCode("vm_silent")
	case errors.Is(err, qmp.ErrLost):
		return fault.Wrap(fault.Conflict, err, "%s: the VM's process has ended", what)
	}
	return err
}

var (
	_ backend.DiskKeeper = (*Backend)(nil)
	_ backend.Disks      = (*Instance)(nil)
)
