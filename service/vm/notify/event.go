package notify

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/endpoint"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// version is that of the form of Data. It changes when receivers have to change, and not when a field
// is added.
const version = 1

// Data is what an event says to programs. docs/services/vm.md describes it.
type Data struct {
	Version int     `json:"version"`
	VM      VM      `json:"vm"`
	Backup  *Backup `json:"backup,omitempty"` // of backup events
	// Actor is the user who caused it; empty: nobody, or the hypervisor daemon told of it first.
	Actor   string `json:"actor,omitempty"`
	Message string `json:"message,omitempty"`
}

// VM is the VM that an event is about, as it was right after the event.
type VM struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	Tenant        string `json:"tenant,omitempty"`
	State         string `json:"state,omitempty"` // of VM events
	PreviousState string `json:"previous_state,omitempty"`
	// Sequence is the number of changes that the VM's event log had, so that receivers can put its events
	// in order.
	Sequence int64 `json:"sequence,omitempty"`
}

// Backup is the backup that an event is about.
type Backup struct {
	ID        string     `json:"id"`
	Type      string     `json:"type"`
	Status    string     `json:"status"`
	SizeBytes int64      `json:"size_bytes"`
	Created   time.Time  `json:"created"`
	Finished  *time.Time `json:"finished,omitempty"`
}

// sentences are what chats show, after the VM's name.
var sentences = map[string]string{
	record.VMCreated: "was created", record.VMStarted: "has started", record.VMStopped: "has stopped",
	record.VMPaused: "was paused", record.VMResumed: "was resumed", record.VMFailed: "has failed",
	record.VMMissing: "is missing", record.VMFound: "was found again", record.VMDeleted: "was deleted",
	record.BackupWasCompleted: "was backed up", record.BackupHasFailed: "could not be backed up",
	record.BackupWasDamaged: "has a damaged backup",
}

// urgent are the events that somebody should look at now.
var urgent = map[string]bool{
	record.VMFailed: true, record.VMMissing: true, record.BackupHasFailed: true, record.BackupWasDamaged: true,
}

// publish stores deliveries of what has happened, for the webhooks that want to know.
func (n *Notifier) publish(ctx context.Context, tx *db.Tx, h record.Happening) error {
	tenant, ev := eventOf(h)
	tags, err := record.TagsOf(ctx, tx, h)
	if err != nil {
		return err
	}
	ev.Tags, ev.Urgent = tags, urgent[h.Type]
	_, err = n.endpoints.Publish(ctx, tx, tenant, ev)
	return err
}

// eventOf translates a happening, and returns whose it is.
func eventOf(h record.Happening) (tenant string, ev endpoint.Event) {
	data := Data{Version: version, Actor: h.Actor}
	if b := h.Backup; b != nil {
		tenant = b.Tenant
		data.VM = VM{ID: b.VM, Name: b.VMName, Tenant: b.Tenant}
		data.Backup = &Backup{
			ID: b.ID, Type: b.Kind, Status: b.Status, SizeBytes: b.SizeBytes, Created: b.CreatedAt.UTC(),
			Finished: b.FinishedAt.Ptr(),
		}
		data.Message = reason(b.Error)
		if h.Type == record.BackupHasFailed && b.Error == "" {
			data.Message = "it does not boot: " + reason(b.BootError)
		}
	} else {
		r := h.VM
		tenant = r.Tenant
		data.VM = VM{
			ID: r.ID, Name: r.Name, Tenant: r.Tenant, State: string(r.State), PreviousState: string(h.Was), Sequence: r.Events,
		}
		if h.Type == record.VMFailed || h.Type == record.VMMissing {
			data.Message = reason(r.LastError)
		}
	}
	text := "VM " + data.VM.Name + " " + sentences[h.Type]
	if tenant != "" {
		text += " (tenant " + tenant + ")"
	}
	if data.Message != "" {
		text += ": " + data.Message
	} else {
		text += "."
	}
	return tenant, endpoint.Event{Type: h.Type, At: h.At, Text: text, Data: data}
}

// maxReason bounds a reason, in bytes. The daemon's may hold a guest's words.
const maxReason = 2000

// reason returns why something failed, as everybody may read it.
func reason(text string) string {
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	return caller.Caller{}.Public(text)
}
