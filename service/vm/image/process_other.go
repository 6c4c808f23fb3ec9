//go:build !linux

package image

import (
	"context"
	"io"
	"os"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

type tool struct {
	name  string
	args  []string
	dir   string
	stdin io.Reader
	hint  string
}

func (t tool) run(context.Context, io.Writer) error {
	return fault.New(fault.Unavailable, "images are built on Linux only")
}

func give(folder string) error { return os.Mkdir(folder, 0o700) }

func owned(path string, flag int) (*os.File, error) { return os.OpenFile(path, flag, 0) }

func remove(folder string) error { return os.RemoveAll(folder) }

func allocated(info os.FileInfo) int64 { return info.Size() }
