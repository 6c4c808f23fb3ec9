package pki

import (
	"io/fs"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// createOnce creates a file, unless another process has done so.
func createOnce(path string, content []byte, mode fs.FileMode) error {
	if err := durable.Create(path, content, mode); err != nil {
		return storage(err, "create %s", path)
	}
	return nil
}

func storage(cause error, format string, args ...any) error {
	return fault.Wrap(fault.StorageFailed, cause, "pki: "+format, args...)
}
