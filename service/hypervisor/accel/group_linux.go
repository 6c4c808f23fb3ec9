package accel

import "syscall"

// ownGroup lets a process be killed together with its children, and die with us.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
