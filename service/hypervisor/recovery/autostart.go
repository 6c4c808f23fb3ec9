package recovery

import (
	"context"
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/service/hypervisor/caller"
)

// Autostart starts the VMs that start with the host. It does so once per boot of the host. After a
// restart of only the daemon, most of these VMs are still running, and stopped ones stay stopped.
func (y *Recovery) Autostart(ctx context.Context) {
	ctx = caller.ByItself(ctx)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		y.log.Error("which boot of the host this is cannot be told; nothing is started with it", "error", err)
		return
	}
	path := filepath.Join(y.data, "boot")
	if last, err := os.ReadFile(path); err == nil && string(last) == string(boot) { //nolint:gosec // our own folder
		return
	}
	ids, err := y.store.StartWithHost(ctx)
	if err != nil {
		y.log.Error("VMs are not started with the host", "error", err)
		return
	}
	for _, id := range ids {
		if _, err := y.life.Start(ctx, id); err != nil {
			y.log.Error("a VM is not started with the host", "vm", id, "error", err)
		}
	}
	if err := os.WriteFile(path, boot, 0o600); err != nil {
		y.log.Error("the boot of the host is not noted", "error", err)
	}
}
