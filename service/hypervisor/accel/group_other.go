//go:build !linux

package accel

import "syscall"

// ownGroup lets a process be killed together with its children.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
