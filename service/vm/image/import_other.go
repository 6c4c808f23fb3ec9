//go:build !linux

package image

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Import begins to take in a file of the host.
func (m *Manager) Import(context.Context, Request) (record.Image, error) {
	return record.Image{}, fault.New(fault.Unavailable, "files of the host are imported on Linux only")
}

func (m *Manager) importFile(context.Context, *work) (string, error) {
	return "", fault.New(fault.Unavailable, "files of the host are imported on Linux only")
}
