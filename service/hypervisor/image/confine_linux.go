package image

import (
	"os"
	"os/exec"
	"syscall"
)

// confine has a program end with this process, in a group of its own and, if this process
// is root's, without a network.
func confine(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC
	}
}
