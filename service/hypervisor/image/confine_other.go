//go:build !linux

package image

import (
	"os/exec"
	"syscall"
)

func confine(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
