package template

import (
	"errors"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// broken remembers which templates were found damaged or incomplete, so that lists say so and no start reads
// them again. Whoever puts a file back makes the template usable.
type broken struct {
	mu   sync.Mutex
	byID map[string]finding
}

// finding is what was found, and the marks of the files that it was found in.
type finding struct{ why, marks string }

// note remembers what a start from a template has failed for, if that is the template's files.
func (b *broken) note(h *host.Host, t *record.Template, err error) {
	if !errors.Is(err, host.ErrTemplateFile) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID == nil {
		b.byID = map[string]finding{}
	}
	b.byID[t.ID] = finding{fault.From(err).Message, h.TemplateMarks(t.ID)}
}

// why returns what is wrong with the files of a template, as far as it is known, or "".
func (b *broken) why(h *host.Host, t *record.Template) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.byID[t.ID]
	if ok && found.marks != h.TemplateMarks(t.ID) {
		delete(b.byID, t.ID)
		return ""
	}
	return found.why
}

// forget is called when a template is deleted.
func (b *broken) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byID, id)
}
