//go:build !linux && !darwin

package vm

import (
	"errors"
	"os"
)

func rawMode(*os.File) (func() error, error) {
	return nil, errors.New("consoles are attached on Linux and macOS; give the input by a pipe")
}
