package hypervisor

import (
	"path/filepath"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/cloudhypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/firecracker"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/qemu"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/sandbox"
	"github.com/mainstay-infra/mainstay/service/hypervisor/configfile"
)

// localBackends returns the backends that this host may have.
func (s *Service) localBackends(doc *configfile.Config) map[string]backend.Backend {
	jails := doc.Jailer.ChrootBaseDir
	if jails == "" {
		jails = filepath.Join(s.data, "jails")
	}
	return map[string]backend.Backend{
		backend.QEMU: qemu.New(qemu.Options{
			Program: s.cfg.QEMU, Accel: s.cfg.Accel, CacheFile: filepath.Join(s.data, "accelerator.json"), Log: s.log,
		}),
		backend.Sandbox: sandbox.New(sandbox.Options{Program: s.cfg.Runsc, Agent: s.agentProgram()}),
		backend.Firecracker: firecracker.New(firecracker.Options{
			Program: s.cfg.Firecracker, Log: s.log,
			Jailer: firecracker.Jailer{Enabled: doc.Jailer.Enabled, Binary: doc.Jailer.JailerBinary, ChrootBase: jails},
		}),
		backend.CloudHypervisor: cloudhypervisor.New(cloudhypervisor.Options{
			Program: s.cfg.CloudHypervisor, Firmware: s.cfg.CloudHypervisorFirmware, Log: s.log,
		}),
	}
}
