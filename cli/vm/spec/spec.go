// Package spec builds the request for a VM from a command's flags and a file, for `mainstay vm` and
// `mainstay fleet`. A flag overrides the file; the daemon chooses defaults for fields that neither
// sets.
package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

const (
	maxFile     = 1 << 20 // of --file, in bytes
	maxUserData = 64 << 10
	maxSmall    = 8 << 10 // of a key or a token
)

// Flags holds the flags for a VM's fields.
type Flags struct {
	file, backend, image, kernel, initrd, firmware, kernelArgs, tenant, storage string
	network, bridge, mac, ip, agentToken, userData, hostname, template          string
	publish                                                                     Ports
	sshKeys                                                                     []string
	vcpus                                                                       int
	memory, disk                                                                input.Size
	ttl                                                                         time.Duration
	agent, autostart, start, instant                                            bool
	labels                                                                      verb.Pairs
}

// AddShort defines the flags that `mainstay vm run` has.
func (f *Flags) AddShort(cmd *cobra.Command) {
	f.memory, f.disk = input.MiB(), input.GiB()
	fs := cmd.Flags()
	fs.IntVar(&f.vcpus, "vcpus", 1, "number of processors")
	fs.Var(&f.memory, "memory", "memory, in MiB or with a unit: 512, 2G (default 512)")
	fs.Var(&f.disk, "disk", "size of the system disk, in GiB or with a unit: 20, 1T (default: the image's)")
	fs.StringVar(&f.network, "network", "", "none, user, bridge or tap (default user)")
	fs.StringVar(&f.bridge, "bridge", "", "the host's bridge, with --network bridge")
	fs.StringVar(&f.backend, "backend", "", "auto, qemu, firecracker, cloud-hypervisor or sandbox (default auto)")
	fs.StringVar(&f.kernelArgs, "kernel-args", "", "arguments of the kernel that is booted without firmware")
	fs.StringVar(&f.tenant, "tenant", "", "tenant that the VM belongs to (default: the token's)")
	fs.DurationVar(&f.ttl, "ttl", 0, "delete the VM so long after it was made")
	fs.Var(&f.labels, "label", "label of the VM; may be repeated")
	fs.StringVar(&f.template, "from-template", "", "template that the VM starts from (default: any that fits)")
	fs.BoolVar(&f.instant, "instant", true, "start from a template if one fits; --instant=false: boot")
}

// Add defines all flags.
func (f *Flags) Add(cmd *cobra.Command) {
	f.AddShort(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.file, "file", "", "JSON or YAML file with the fields of the VM; flags beat it")
	fs.StringVar(&f.image, "image", "", "name in the catalog, or absolute path on the host")
	fs.StringVar(&f.kernel, "kernel", "", "path on the host of a kernel to boot without firmware")
	fs.StringVar(&f.initrd, "initrd", "", "path on the host of the kernel's initial RAM disk")
	fs.StringVar(&f.firmware, "firmware", "", "uefi, bios, or a path on the host")
	fs.StringVar(&f.storage, "storage", "", "dir, lvm-thin, nbd, ceph-rbd or ceph-rbd-in-place (default dir)")
	fs.Var(&f.publish, "publish", Publish)
	fs.StringVar(&f.mac, "mac", "", "hardware address of the network device (default: one is made)")
	fs.StringVar(&f.ip, "ip", "", "address of the bridge's network that is leased to the guest")
	fs.BoolVar(&f.agent, "agent", true, "give the guest's agent a channel")
	fs.StringVar(&f.agentToken, "agent-token-file", "", "file with the agent's secret (default: one is made)")
	fs.BoolVar(&f.autostart, "autostart", false, "start the VM with the host")
	fs.BoolVar(&f.start, "start", false, "start the VM when it is made")
	fs.StringVar(&f.userData, "user-data", "", "file with user data for cloud-init")
	fs.StringArrayVar(
		&f.sshKeys, "ssh-key", nil, "file with a public key that may log in, for cloud-init; may be repeated",
	)
	fs.StringVar(&f.hostname, "hostname", "", "name of the guest, for cloud-init")
}

// Spec returns the request for a VM with this name; an empty name keeps the file's.
func (f *Flags) Spec(c *daemon.Call, name string) (hypervisorapi.VMSpec, error) {
	spec, err := f.read()
	if err != nil {
		return spec, err
	}
	if name != "" {
		spec.Name = name
	}
	set(c, "vcpus", &spec.Vcpus, f.vcpus)
	set(c, "memory", &spec.MemoryMib, f.memory.Count)
	set(c, "disk", &spec.DiskGib, f.disk.Count)
	set(c, "backend", &spec.Backend, hypervisorapi.Backend(f.backend))
	set(c, "image", &spec.Image, f.image)
	set(c, "kernel", &spec.Kernel, f.kernel)
	set(c, "initrd", &spec.Initrd, f.initrd)
	set(c, "firmware", &spec.Firmware, f.firmware)
	set(c, "kernel-args", &spec.KernelArgs, f.kernelArgs)
	set(c, "tenant", &spec.Tenant, f.tenant)
	set(c, "storage", &spec.Storage, hypervisorapi.VMSpecStorage(f.storage))
	set(c, "autostart", &spec.Autostart, f.autostart)
	set(c, "start", &spec.Start, f.start)
	set(c, "from-template", &spec.Template, f.template)
	set(c, "instant", &spec.Instant, f.instant)
	if c.Cmd.Flags().Changed("ttl") {
		if f.ttl < time.Second {
			return spec, exit.Usagef("--ttl must be at least 1s, not %s", f.ttl)
		}
		spec.TtlSeconds = new(int64(f.ttl / time.Second))
	}
	if len(f.labels) > 0 {
		labels := hypervisorapi.Labels{}
		if spec.Labels != nil {
			labels = *spec.Labels
		}
		maps.Copy(labels, f.labels)
		spec.Labels = &labels
	}
	f.setNetwork(c, &spec)
	if err := f.setAgent(c, &spec); err != nil {
		return spec, err
	}
	return spec, f.setCloudInit(c, &spec)
}

// set sets a field to a flag's value if the flag was given. Commands without the flag never set it.
func set[T any](c *daemon.Call, flag string, field **T, value T) {
	if given := verb.Given(c, flag, value); given != nil {
		*field = given
	}
}

func changed(c *daemon.Call, flags ...string) bool {
	return slices.ContainsFunc(flags, c.Cmd.Flags().Changed)
}

func (f *Flags) setNetwork(c *daemon.Call, spec *hypervisorapi.VMSpec) {
	if !changed(c, "network", "bridge", "mac", "ip", "publish") {
		return
	}
	if spec.Network == nil {
		spec.Network = &hypervisorapi.Network{}
	}
	set(c, "network", &spec.Network.Mode, hypervisorapi.NetworkMode(f.network))
	set(c, "bridge", &spec.Network.Bridge, f.bridge)
	set(c, "mac", &spec.Network.Mac, strings.ToLower(f.mac))
	set(c, "ip", &spec.Network.Ip, f.ip)
	spec.Network.Forwards = f.publish.forwards()
}

func (f *Flags) setAgent(c *daemon.Call, spec *hypervisorapi.VMSpec) error {
	if !changed(c, "agent", "agent-token-file") {
		return nil
	}
	if spec.Agent == nil {
		spec.Agent = &hypervisorapi.AgentSpec{}
	}
	set(c, "agent", &spec.Agent.Enabled, f.agent)
	if changed(c, "agent-token-file") {
		token, err := verb.ReadText("agent-token-file", f.agentToken, maxSmall)
		if err != nil {
			return err
		}
		spec.Agent.Token = new(strings.TrimSpace(token))
	}
	return nil
}

func (f *Flags) setCloudInit(c *daemon.Call, spec *hypervisorapi.VMSpec) error {
	if !changed(c, "user-data", "ssh-key", "hostname") {
		return nil
	}
	if spec.CloudInit == nil {
		spec.CloudInit = &hypervisorapi.CloudInit{}
	}
	set(c, "hostname", &spec.CloudInit.Hostname, f.hostname)
	if changed(c, "user-data") {
		text, err := verb.ReadText("user-data", f.userData, maxUserData)
		if err != nil {
			return err
		}
		spec.CloudInit.UserData = &text
	}
	keys := []string{}
	for _, path := range f.sshKeys {
		key, err := verb.ReadText("ssh-key", path, maxSmall)
		if err != nil {
			return err
		}
		keys = append(keys, strings.TrimSpace(key))
	}
	if len(keys) > 0 {
		spec.CloudInit.SshAuthorizedKeys = &keys
	}
	return nil
}

// read reads the file. YAML is a superset of JSON, so one parser handles both.
func (f *Flags) read() (spec hypervisorapi.VMSpec, err error) {
	if f.file == "" {
		return spec, nil
	}
	text, err := verb.ReadText("file", f.file, maxFile)
	if err != nil {
		return spec, err
	}
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		return spec, exit.Usagef("--file: %s is neither JSON nor YAML: %v", f.file, err)
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return spec, exit.Usagef("--file: %s: %v", f.file, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields() // a misspelt field would be ignored silently
	if err := decoder.Decode(&spec); err != nil {
		return spec, exit.Usagef("--file: %s: %v", f.file, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: ")))
	}
	return spec, nil
}
