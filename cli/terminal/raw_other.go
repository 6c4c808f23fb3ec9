//go:build !linux && !darwin

package terminal

import (
	"errors"
	"os"
)

var errOther = errors.New("terminals are known on Linux and macOS only; give the input by a pipe")

// Raw returns an error.
func Raw(*os.File) (restore func() error, err error) { return nil, errOther }

// Hidden returns an error.
func Hidden(*os.File) (restore func() error, err error) { return nil, errOther }

func columns(*os.File) int { return 0 }
