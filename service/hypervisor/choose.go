package hypervisor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/hypervisor/accel"
	"github.com/mainstay-infra/mainstay/service/hypervisor/admission"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/host"
	"github.com/mainstay-infra/mainstay/service/hypervisor/record"
)

// preferred is the order in which auto tries backends for what boots like a machine: the
// first has all features.
var preferred = []string{backend.QEMU, backend.CloudHypervisor, backend.Firecracker}

// choose picks the backend of a VM, and says why. A backend that is named but missing is
// refused, since nothing could be done with the VM.
func (s *Service) choose(ctx context.Context, req *Request, b *base) (name, why string, err error) {
	if req.Backend != backend.Auto {
		chosen := s.host.Backends()[req.Backend]
		if chosen == nil {
			return "", "", fault.InvalidField("backend", "there is no backend %s", req.Backend)
		}
		if err := chosen.Check(s.sketch(req, b, req.Backend)); err != nil {
			return "", "", err
		}
		if info := s.probe(ctx, req.Backend); !info.Available {
			return "", "", fault.New(fault.Unavailable, "the backend %s is not available on this host: %s", req.Backend, info.Detail).WithCode("backend_unavailable")
		}
		return req.Backend, req.Backend + ", as was asked", nil
	}
	candidates := preferred
	if b.boot.RootFS != "" {
		candidates = []string{backend.Sandbox}
	}
	var passed []string
	var refused error
	for _, name := range candidates {
		one := s.host.Backends()[name]
		if one == nil {
			continue
		}
		if allowed := s.policy.AllowedBackends; len(allowed) > 0 && !slices.Contains(allowed, name) {
			passed = append(passed, name+" is not allowed (policy.allowed_backends)")
			continue
		}
		if err := one.Check(s.sketch(req, b, name)); err != nil {
			passed, refused = append(passed, name+" cannot run it: "+fault.From(err).Message), cmp.Or(refused, err)
			continue
		}
		info := s.probe(ctx, name)
		if !info.Available {
			passed = append(passed, name+" is not available: "+info.Detail)
			continue
		}
		why := fmt.Sprintf("%s %s (%s)", name, info.Version, info.Detail)
		if len(passed) > 0 {
			why += "; " + strings.Join(passed, "; ")
		}
		return name, why, nil
	}
	if refused != nil && len(passed) == 1 {
		return "", "", refused
	}
	return "", "", fault.New(fault.Unavailable, "no backend of this host can run the VM: %s", strings.Join(passed, "; ")).WithCode("backend_unavailable")
}

// sketch is a VM that is not made yet, as far as a backend looks at it.
func (s *Service) sketch(req *Request, b *base, name string) *backend.Spec {
	r := record.VM{Backend: name, VCPUs: req.Spec.VCPUs, MemoryMiB: req.Spec.MemoryMiB, Name: req.Name}
	if req.Spec.Network.HasTap() {
		r.Tap = "tap" // it gets one when it starts
	}
	r.Spec.V = req.Spec
	r.Spec.V.Boot = b.boot
	return s.host.Spec(&r)
}

// findFirmware is the file that a request's firmware stands for.
func (s *Service) findFirmware(files admission.Files, b *base, firmware string) error {
	switch firmware {
	case "", "bios":
		return nil
	case "uefi":
		if b.boot.Firmware = Firmware(); b.boot.Firmware == "" {
			return fault.New(fault.Unavailable, "this host has no UEFI firmware for VMs: apt-get install ovmf")
		}
		return nil
	}
	wrong := fault.InvalidField("firmware", "must be uefi, bios, or a path such as /dir/OVMF_CODE.fd with OVMF_VARS.fd beside it")
	folder, name := filepath.Split(firmware)
	if !strings.Contains(name, "_CODE") {
		return wrong
	}
	f, err := files.Image(firmware)
	if err != nil {
		return admission.About(err, "firmware")
	}
	b.copies = append(b.copies, host.Copy{File: f, Name: host.FirmwareCode})
	vars, err := files.Image(folder + strings.Replace(name, "_CODE", "_VARS", 1))
	if err != nil {
		return wrong
	}
	b.copies = append(b.copies, host.Copy{File: vars, Name: host.FirmwareVars})
	b.boot.Firmware = host.FirmwareCode
	return nil
}

// Firmware finds the UEFI firmware of this host; empty if there is none.
func Firmware() string {
	for _, path := range []string{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/x64/OVMF_CODE.4m.fd"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// probeLife is how long an answer of Probe is taken for true.
const probeLife = 15 * time.Second

// probes remembers what backends can do.
type probes struct {
	mu      sync.Mutex
	answers map[string]probed
}

type probed struct {
	info backend.Info
	at   time.Time
}

// probe asks a backend what it can do on this host.
func (s *Service) probe(ctx context.Context, name string) backend.Info {
	s.probes.mu.Lock()
	answer, known := s.probes.answers[name]
	s.probes.mu.Unlock()
	if known && s.now().Sub(answer.at) < probeLife {
		return answer.info
	}
	if name == backend.Firecracker || name == backend.CloudHypervisor {
		return s.probeKVM(ctx, name)
	}
	// A caller who leaves must not leave "does not run" behind for others.
	return s.remember(name, s.host.Backends()[name].Probe(context.WithoutCancel(ctx)))
}

func (s *Service) remember(name string, info backend.Info) backend.Info {
	s.probes.mu.Lock()
	defer s.probes.mu.Unlock()
	s.probes.answers[name] = probed{info, s.now()}
	return info
}

// probeKVM is probe of a backend that has nothing but KVM: that the device opens proves
// nothing, so what QEMU found out by booting counts.
func (s *Service) probeKVM(ctx context.Context, name string) backend.Info {
	info := s.host.Backends()[name].Probe(context.WithoutCancel(ctx))
	if info.Available && s.host.Backends()[backend.QEMU] != nil {
		if found := s.probe(ctx, backend.QEMU); found.Available && found.Accelerator == string(accel.TCG) {
			info.Available, info.Detail = false, "it takes KVM, which does not work here ("+found.Detail+")"
		}
	}
	return s.remember(name, info)
}
