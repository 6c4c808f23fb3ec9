package e2e

import "syscall"

// dieWithParent keeps servers from outliving a test process that is killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
