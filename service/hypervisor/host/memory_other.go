//go:build !linux

package host

import (
	"errors"
	"os"
)

func newMemory(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func seal(*os.File) error { return errors.ErrUnsupported }
