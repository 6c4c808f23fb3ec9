//go:build !linux

package ota

import "syscall"

// ownGroup gives the hook a process group of its own, so that it can be stopped
// with all it started.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
