//go:build !linux

package ota

import "syscall"

// ownGroup gives the hook its own process group, so that it can be stopped with all its children.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
