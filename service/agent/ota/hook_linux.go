package ota

import "syscall"

// ownGroup gives the hook a process group of its own, so that it can be stopped
// with all it started, and has the kernel end it when the agent dies: an agent
// that starts again calls it again, and two at once would be in each other's way.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
