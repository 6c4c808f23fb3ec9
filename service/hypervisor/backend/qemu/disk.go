//go:build linux

package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

// systemNode is the name of the system disk's node in the monitor.
const systemNode = "system"

// The names of the jobs, of which there is one at a time: the daemon works on one VM with
// one hand.
const (
	copyJob     = "mainstay-copy"
	snapshotJob = "mainstay-snapshot"
	copyTarget  = "mainstay-target"
)

// OpenDisks runs a QEMU that has the VM's disks and nothing else.
func (b *Backend) OpenDisks(ctx context.Context, s *backend.Spec) (backend.Disks, error) {
	only := *s
	only.Disks = only.Disks[:1]
	m, err := b.machine(&backend.Spec{ID: s.ID, Name: s.Name, Folder: s.Folder, VCPUs: 1, MemoryMiB: 1, Disks: only.Disks, UID: s.UID, GID: s.GID}, "tcg")
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
	return &opened{newInstance(s.Folder, p, monitor)}, nil
}

// opened is a VM of which only the disks are there.
type opened struct{ *Instance }

// Close ends the QEMU, which writes what it has in memory first.
func (o *opened) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := o.monitor.Quit(ctx); err != nil && !errors.Is(err, qmp.ErrLost) {
		_ = o.process.Kill() // it does not listen
	}
	<-o.done
	return o.Instance.Close()
}

// StartFrom starts a VM halted, and loads the snapshot before it runs.
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

// Snapshot keeps the disk within itself.
func (i *Instance) Snapshot(ctx context.Context, name string, full bool) (int64, error) {
	if !full {
		err := i.monitor.Execute(ctx, "blockdev-snapshot-internal-sync", map[string]any{"device": systemNode, "name": name}, nil)
		return 0, refusal(err, "the snapshot was not made")
	}
	err := i.job(ctx, "snapshot-save", snapshotJob, map[string]any{"tag": name, "vmstate": systemNode, "devices": []string{systemNode}})
	if err != nil {
		return 0, refusal(err, "the snapshot was not made")
	}
	return i.memoryOf(ctx, name)
}

// memoryOf is how much memory a snapshot holds.
func (i *Instance) memoryOf(ctx context.Context, name string) (int64, error) {
	var nodes []struct {
		Name  string `json:"node-name"`
		Image struct {
			Snapshots []struct {
				Name string `json:"name"`
				Size int64  `json:"vm-state-size"`
			} `json:"snapshots"`
		} `json:"image"`
	}
	if err := i.monitor.Execute(ctx, "query-named-block-nodes", nil, &nodes); err != nil {
		return 0, err
	}
	for _, n := range nodes {
		for _, s := range n.Image.Snapshots {
			if n.Name == systemNode && s.Name == name {
				return s.Size, nil
			}
		}
	}
	return 0, fmt.Errorf("QEMU has no snapshot %s after making it", name)
}

// DeleteSnapshot removes one of either kind.
func (i *Instance) DeleteSnapshot(ctx context.Context, name string) error {
	err := i.monitor.Execute(ctx, "blockdev-snapshot-delete-internal-sync", map[string]any{"device": systemNode, "name": name}, nil)
	return refusal(err, "the snapshot was not removed")
}

// RevertFull loads a snapshot's disk and memory, and lets the VM run.
func (i *Instance) RevertFull(ctx context.Context, name string) error {
	if err := i.monitor.Stop(ctx); err != nil {
		return err
	}
	if err := i.job(ctx, "snapshot-load", snapshotJob, map[string]any{"tag": name, "vmstate": systemNode, "devices": []string{systemNode}}); err != nil {
		return refusal(err, "the snapshot was not loaded")
	}
	return i.monitor.Cont(ctx)
}

// job runs a command that is a job, to its end.
func (i *Instance) job(ctx context.Context, command, id string, arguments map[string]any) error {
	arguments["job-id"] = id
	if err := i.monitor.Execute(ctx, command, arguments, nil); err != nil {
		return err
	}
	return i.await(ctx, id, nil)
}

// await waits for a job. If ctx ends, the job is ended too.
func (i *Instance) await(ctx context.Context, id string, progress func(current, total int64)) error {
	err := i.monitor.WaitJob(ctx, id, progress)
	if ctx.Err() == nil {
		return err
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	if cancelErr := i.monitor.Execute(cleanup, "job-cancel", map[string]any{"id": id}, nil); cancelErr != nil {
		return errors.Join(ctx.Err(), cancelErr)
	}
	var cancelled *qmp.JobError
	if waitErr := i.monitor.WaitJob(cleanup, id, nil); waitErr != nil && !errors.As(waitErr, &cancelled) {
		return errors.Join(ctx.Err(), waitErr)
	}
	return ctx.Err()
}

// endJob ends a job that nobody waits for any more, if there is one.
func (i *Instance) endJob(ctx context.Context, id string) {
	if err := i.monitor.Execute(ctx, "job-cancel", map[string]any{"id": id}, nil); err != nil {
		_ = i.monitor.Execute(ctx, "job-dismiss", map[string]any{"id": id}, nil) // it has ended, or there is none
		return
	}
	_ = i.monitor.WaitJob(ctx, id, nil) // it was cancelled
}

// Copy has QEMU write the disk, as it is at one moment, to another file, while the guest
// goes on.
func (i *Instance) Copy(ctx context.Context, c backend.DiskCopy, progress func(float64)) (err error) {
	// What a daemon that was killed left is in the way.
	i.endJob(ctx, copyJob)
	i.dropTarget(ctx)
	if err := i.monitor.Execute(ctx, "blockdev-add", map[string]any{
		"node-name": copyTarget, "driver": "qcow2", "backing": nil, "discard": "unmap", "detect-zeroes": "unmap",
		"file": map[string]any{"driver": "file", "filename": c.Target},
	}, nil); err != nil {
		return refusal(err, "the copy's file cannot be opened")
	}
	defer func() { i.dropTarget(context.WithoutCancel(ctx)) }()
	backup := map[string]any{"job-id": copyJob, "device": systemNode, "target": copyTarget, "sync": "full", "auto-dismiss": false}
	if c.Since != "" {
		backup["sync"], backup["bitmap"], backup["bitmap-mode"] = "bitmap", c.Since, "never"
	}
	actions := []any{map[string]any{"type": "blockdev-backup", "data": backup}}
	if c.Note != "" {
		actions = append([]any{map[string]any{"type": "block-dirty-bitmap-add", "data": map[string]any{"node": systemNode, "name": c.Note, "persistent": true}}}, actions...)
	}
	err = i.monitor.Execute(ctx, "transaction", map[string]any{"actions": actions}, nil)
	if c.Begun != nil {
		c.Begun()
	}
	if err != nil {
		return refusal(err, "the copy could not begin")
	}
	err = i.await(ctx, copyJob, func(current, total int64) {
		if total > 0 && progress != nil {
			progress(float64(current) / float64(total))
		}
	})
	if err != nil && c.Note != "" {
		err = errors.Join(err, i.dropBitmap(context.WithoutCancel(ctx), c.Note))
	}
	return refusal(err, "the disk was not copied")
}

// dropTarget closes the file of a copy. It is busy for a moment after a job.
func (i *Instance) dropTarget(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := i.monitor.Execute(ctx, "blockdev-del", map[string]any{"node-name": copyTarget}, nil)
		refused := (*qmp.Error)(nil)
		if err == nil || !errors.As(err, &refused) || !i.hasNode(ctx, copyTarget) {
			return
		}
		select {
		case <-ctx.Done():
			return
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

// bitmap is what QEMU says of one.
type bitmap struct {
	Name string `json:"name"`
	// Inconsistent is one that was in use when a QEMU was killed: what it notes is not all.
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

// HasBitmap says whether the system's disk has a bitmap that can be relied on.
func (i *Instance) HasBitmap(ctx context.Context, name string) (bool, error) {
	all, err := i.bitmaps(ctx)
	return slices.ContainsFunc(all, func(b bitmap) bool { return b.Name == name && !b.Inconsistent }), err
}

// DropBitmaps removes all bitmaps of the system's disk but those to keep.
func (i *Instance) DropBitmaps(ctx context.Context, keep ...string) error {
	all, err := i.bitmaps(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range all {
		if !slices.Contains(keep, b.Name) {
			errs = append(errs, i.dropBitmap(ctx, b.Name))
		}
	}
	return errors.Join(errs...)
}

func (i *Instance) dropBitmap(ctx context.Context, name string) error {
	return i.monitor.Execute(ctx, "block-dirty-bitmap-remove", map[string]any{"node": systemNode, "name": name}, nil)
}

// Resize makes the disk larger; the guest sees that at once.
func (i *Instance) Resize(ctx context.Context, size int64) error {
	err := i.monitor.Execute(ctx, "block_resize", map[string]any{"node-name": systemNode, "size": size}, nil)
	return refusal(err, "the disk keeps its size")
}

// refusal is what QEMU said as a fault, since mostly it is about the state of the VM.
func refusal(err error, what string) error {
	refused, failed := (*qmp.Error)(nil), (*qmp.JobError)(nil)
	switch {
	case errors.As(err, &refused):
		return fault.Wrap(fault.Conflict, err, "%s: %s", what, refused.Description)
	case errors.As(err, &failed):
		return fault.Wrap(fault.Conflict, err, "%s: %s", what, failed.Description)
	}
	return err
}

var (
	_ backend.DiskKeeper = (*Backend)(nil)
	_ backend.Disks      = (*Instance)(nil)
)
