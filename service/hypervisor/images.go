package hypervisor

import (
	"context"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/kit/audit"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// usable says whether VMs may be made of an image.
func (s *Service) usable(i *record.Image) error {
	switch {
	case i.Locked:
		return fault.New(fault.Conflict, "the image %s is locked", i.Name).WithCode("image_locked")
	case s.doc.Images.RequireSigned && (i.SignatureValid == nil || !*i.SignatureValid):
		return admission.RefuseField("images.require_signed", "image", "%s has no good signature, which images.require_signed demands", i.Name)
	}
	return nil
}

// hold keeps contents from being cleaned until what it returns is called.
func (s *Service) hold() func() {
	s.cleaning.RLock()
	return s.cleaning.RUnlock
}

// CleanImages removes from disk what no image and no VM needs, and says how many contents
// and bytes that were.
func (s *Service) CleanImages(ctx context.Context) (files int, bytes int64, err error) {
	// Waiting in line would hold up all who make VMs behind an image that is being taken in.
	for patience := 50; !s.cleaning.TryLock(); patience-- {
		if patience == 0 {
			return 0, 0, fault.New(fault.Conflict, "images are being taken in, or VMs made; try again when that is over").WithCode("images_in_use")
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
	defer s.cleaning.Unlock()
	needed, err := s.store.NeededContents(ctx)
	if err != nil {
		return 0, 0, err
	}
	if files, bytes, err = s.contents.Clean(needed); err != nil {
		return files, bytes, err
	}
	return files, bytes, s.store.Note(ctx, audit.Entry{Action: "image.clean", Message: fmt.Sprintf("%d contents, %d bytes", files, bytes)})
}
