package vm

import (
	"context"
	"time"

	"github.com/mainstay-infra/mainstay/service/vm/backup"
	"github.com/mainstay-infra/mainstay/service/vm/browse"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Backups returns what runs on its own, so that tests need not wait for it.
func (s *Service) Backups() *backup.Manager { return s.backups }

// Browser returns what shows the files in backups, for the same reason.
func (s *Service) Browser() *browse.Manager { return s.browser }

// Store returns the rows of the service.
func (s *Service) Store() *record.Store { return s.store }

// SweepReaders removes the readers of this replica that are not in use.
func (s *Service) SweepReaders(ctx context.Context) error { return s.driver.SweepReaders(ctx) }

func init() { imagePause = time.Millisecond } // tests do not wait between the attempts of a download
