//go:build linux

package qemu

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// How the export of a running VM's disk is built:
//
//	the guest's device ──► exportFilter ──► systemNode
//	                            │ copies what is overwritten
//	NBD ──► exportView ─────────┤
//	                            └──► exportScratch
//
// The view shows the disk as it was when the filter was inserted: what was overwritten since comes
// from the scratch file. If that is full, the view breaks, and the guest's writes do not
// (on-cbw-error).
const (
	exportScratch = "mainstay-scratch"
	exportFilter  = "mainstay-filter"
	exportView    = "mainstay-view"
	exportID      = "mainstay-export"
	exportBitmap  = "mainstay-changed" // a copy of Since that does not change
	exportSocket  = "nbd.sock"
)

// systemDevice is the path of the guest's device that uses the system disk.
const systemDevice = "/machine/peripheral/dev-" + systemNode

// Export serves the disk.
func (i *Instance) Export(ctx context.Context, e backend.DiskExport) (_ backend.Export, err error) {
	if err := i.EndExport(ctx); err != nil {
		return backend.Export{}, err
	}
	defer func() {
		if err == nil {
			return
		}
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
		defer cancel()
		err = errors.Join(err, i.EndExport(cleanup))
		if e.Note != "" {
			_ = i.dropBitmap(cleanup, e.Note) // the next export drops it otherwise
		}
	}()
	node, err := i.freeze(ctx, e)
	if e.Begun != nil {
		e.Begun()
	}
	if err != nil {
		return backend.Export{}, refusal(err, "the disk was not exported")
	}
	out := backend.Export{Name: systemNode, Dial: func(ctx context.Context) (net.Conn, error) {
		return process.Dial(ctx, filepath.Join(i.folder, runFolder), exportSocket, i.process.PID)
	}}
	export := map[string]any{
		"id": exportID, "type": "nbd", "node-name": node, "name": systemNode, "writable": e.Writable,
	}
	if e.Since != "" {
		out.Bitmap = exportBitmap
		export["bitmaps"] = []any{map[string]any{"node": systemNode, "name": exportBitmap}}
	}
	for _, c := range []command{
		{"nbd-server-start", map[string]any{
			"addr": map[string]any{"type": "unix", "data": map[string]any{"path": socket(exportSocket)}},
		}},
		{"block-export-add", export},
	} {
		if err := i.monitor.Execute(ctx, c.name, c.arguments, nil); err != nil {
			return backend.Export{}, refusal(err, "the disk was not exported")
		}
	}
	return out, nil
}

// command is one for the monitor.
type command struct {
	name      string
	arguments map[string]any
}

// freeze makes the node that shows the disk as of now. The bitmap e.Note begins a moment before,
// and the copy of e.Since ends a moment after: both report rather too much than too little.
func (i *Instance) freeze(ctx context.Context, e backend.DiskExport) (node string, err error) {
	var steps []command
	node = systemNode
	if e.Note != "" {
		steps = append(steps, command{
			"block-dirty-bitmap-add", map[string]any{"node": systemNode, "name": e.Note, "persistent": true},
		})
	}
	if e.Scratch != "" {
		node = exportView
		steps = append(steps, command{"blockdev-add", map[string]any{
			"node-name": exportScratch, "driver": "qcow2", "file": map[string]any{
				"driver": "raw", "size": e.ScratchSize, // which makes the file's size its limit
				"file": map[string]any{"driver": "file", "filename": e.Scratch},
			},
		}}, command{"blockdev-add", map[string]any{
			"node-name": exportFilter, "driver": "copy-before-write", "file": systemNode, "target": exportScratch,
			"on-cbw-error": "break-snapshot",
		}}, command{"qom-set", map[string]any{"path": systemDevice, "property": "drive", "value": exportFilter}})
	}
	if e.Since != "" {
		steps = append(steps, command{"block-dirty-bitmap-add", map[string]any{
			"node": systemNode, "name": exportBitmap, "disabled": true,
		}}, command{"block-dirty-bitmap-merge", map[string]any{
			"node": systemNode, "target": exportBitmap, "bitmaps": []string{e.Since},
		}})
	}
	if e.Scratch != "" {
		steps = append(steps, command{"blockdev-add", map[string]any{
			"node-name": exportView, "driver": "snapshot-access", "file": exportFilter,
		}})
	}
	for _, c := range steps {
		if err := i.monitor.Execute(ctx, c.name, c.arguments, nil); err != nil {
			return "", err
		}
	}
	return node, nil
}

// EndExport ends the export, if there is one.
func (i *Instance) EndExport(ctx context.Context) error {
	var exports []struct {
		ID string `json:"id"`
	}
	if err := i.monitor.Execute(ctx, "query-block-exports", nil, &exports); err != nil {
		return refusal(err, "whether the disk is exported is not known")
	}
	for _, e := range exports {
		if e.ID == exportID {
			// The server's end waits for its clients, which hard disconnects.
			err := i.monitor.Execute(ctx, "block-export-del", map[string]any{"id": exportID, "mode": "hard"}, nil)
			if err != nil {
				return refusal(err, "the export of the disk was not ended")
			}
		}
	}
	// QEMU refuses this without a server.
	_ = i.monitor.Execute(ctx, "nbd-server-stop", nil, nil)
	// In this order: the filter lets go of the disk only once nobody reads through it.
	for _, name := range []string{exportView, exportFilter, exportScratch} {
		if name == exportFilter && i.hasNode(ctx, name) {
			back := map[string]any{"path": systemDevice, "property": "drive", "value": systemNode}
			if err := i.monitor.Execute(ctx, "qom-set", back, nil); err != nil {
				return refusal(err, "the export of the disk was not ended")
			}
		}
		if err := i.dropNode(ctx, name); err != nil {
			return refusal(err, "the export of the disk was not ended")
		}
	}
	all, err := i.bitmaps(ctx)
	for _, b := range all {
		if b.Name == exportBitmap && err == nil {
			err = i.dropBitmap(ctx, exportBitmap)
		}
	}
	return refusal(err, "the export of the disk was not ended")
}
