package ota

import "syscall"

// ownGroup gives the hook its own process group, so that it can be stopped with all its children.
// It also makes the kernel kill the hook when the agent dies: the restarted agent calls the hook
// again, and two running at once would interfere.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
