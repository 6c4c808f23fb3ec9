package vm

import (
	"time"

	"github.com/mainstay-infra/mainstay/service/vm/backup"
)

// Backups returns what runs on its own, so that tests need not wait for it.
func (s *Service) Backups() *backup.Manager { return s.backups }

func init() { imagePause = time.Millisecond } // tests do not wait between the attempts of a download
