package sandbox

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
)

// secretFile is in the VM's folder.
const secretFile = "secret"

// Where the guest has what the agent needs.
const (
	guestAgent  = "/.mainstay/mainstay-guest"
	guestSecret = "/run/mainstay-guest/secret" //nolint:gosec // a path
)

// environment of the first process and of all that runsc starts.
var environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}

// capabilities are those that containers usually have.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE",
	"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT", "CAP_AUDIT_WRITE",
}

// The part of the OCI runtime's configuration that is used.
type (
	ociConfig struct {
		Version  string     `json:"ociVersion"`
		Process  ociProcess `json:"process"`
		Root     ociRoot    `json:"root"`
		Hostname string     `json:"hostname"`
		Mounts   []ociMount `json:"mounts"`
		Linux    ociLinux   `json:"linux"`
	}
	ociProcess struct {
		User            ociUser             `json:"user"`
		Args            []string            `json:"args"`
		Env             []string            `json:"env"`
		Cwd             string              `json:"cwd"`
		NoNewPrivileges bool                `json:"noNewPrivileges"`
		Capabilities    map[string][]string `json:"capabilities"`
		Rlimits         []ociRlimit         `json:"rlimits"`
	}
	ociUser struct {
		UID int `json:"uid"`
		GID int `json:"gid"`
	}
	ociRlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	ociRoot struct {
		Path     string `json:"path"`
		ReadOnly bool   `json:"readonly"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		Namespaces []ociNamespace `json:"namespaces"`
		Resources  ociResources   `json:"resources"`
	}
	ociNamespace struct {
		Type string `json:"type"`
	}
	ociResources struct {
		Memory struct {
			Limit int64 `json:"limit"` // bytes
		} `json:"memory"`
		CPU struct {
			Quota  int64 `json:"quota"` // microseconds of a period
			Period int64 `json:"period"`
		} `json:"cpu"`
	}
)

// config returns the configuration of a sandbox for runsc. agent is the path of the guest agent on
// the host; secret reports whether the VM's folder has a secret for it.
func config(s *backend.Spec, agent string, secret bool) ([]byte, error) {
	c := ociConfig{Version: "1.0.2", Hostname: s.Name, Root: ociRoot{Path: s.RootFS}, Mounts: mounts(s, agent, secret)}
	c.Process = ociProcess{
		Args:            []string{guestAgent, "init"},
		Env:             environment,
		Cwd:             "/",
		NoNewPrivileges: true,
		Capabilities: map[string][]string{
			"bounding":  capabilities,
			"effective": capabilities,
			"permitted": capabilities,
		},
		Rlimits: []ociRlimit{{Type: "RLIMIT_NOFILE", Hard: 65536, Soft: 1024}},
	}
	for _, kind := range []string{"pid", "network", "ipc", "uts", "mount"} {
		c.Linux.Namespaces = append(c.Linux.Namespaces, ociNamespace{kind})
	}
	c.Linux.Resources.Memory.Limit = int64(s.MemoryMiB) << 20
	c.Linux.Resources.CPU.Period = 100_000
	c.Linux.Resources.CPU.Quota = int64(s.VCPUs) * c.Linux.Resources.CPU.Period
	return json.MarshalIndent(c, "", "  ")
}

func mounts(s *backend.Spec, agent string, secret bool) []ociMount {
	half := fmt.Sprintf("size=%dm", max(1, s.MemoryMiB/2)) // as usual for what lies in memory
	all := []ociMount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{
			Destination: "/dev",
			Type:        "tmpfs",
			Source:      "tmpfs",
			Options:     []string{"nosuid", "mode=755"},
		}, // gVisor knows no size of it
		{
			Destination: "/dev/pts",
			Type:        "devpts",
			Source:      "devpts",
			Options:     []string{"nosuid", "noexec", "mode=0620", "ptmxmode=0666"},
		},
		{
			Destination: "/dev/shm",
			Type:        "tmpfs",
			Source:      "tmpfs",
			Options:     []string{"nosuid", "nodev", "mode=1777", half},
		},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", half}},
		{Destination: guestAgent, Type: "bind", Source: agent, Options: []string{"bind", "ro"}},
	}
	if secret {
		all = append(all, ociMount{
			Destination: guestSecret,
			Type:        "bind",
			Source:      filepath.Join(s.Folder, secretFile),
			Options:     []string{"bind", "ro"},
		})
	}
	return all
}
