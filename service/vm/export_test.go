package vm

import "github.com/mainstay-infra/mainstay/service/vm/backup"

// Backups returns what runs on its own, so that tests need not wait for it.
func (s *Service) Backups() *backup.Manager { return s.backups }
