package spec

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/input"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// Changes holds the flags for what a VM's process has.
type Changes struct {
	vcpus                    int
	memory                   input.Size
	network, bridge, mac, ip string
	publish                  Ports
	private                  bool
}

// Add defines the flags.
func (f *Changes) Add(cmd *cobra.Command) {
	f.memory = input.MiB()
	fs := cmd.Flags()
	fs.IntVar(&f.vcpus, "vcpus", 1, "number of processors")
	fs.IntVar(&f.vcpus, "cpus", 1, "the same as --vcpus")
	fs.Var(&f.memory, "memory", "memory, in MiB or with a unit: 512, 2G")
	fs.StringVar(&f.network, "network", "", "none, user, bridge or tap")
	fs.StringVar(&f.bridge, "bridge", "", "the host's bridge, with --network bridge")
	fs.StringVar(&f.mac, "mac", "", "hardware address of the network device, with --network")
	fs.StringVar(&f.ip, "ip", "", "address of the bridge's network that is leased to the guest, with --network bridge")
	fs.Var(&f.publish, "publish", Publish+"; replaces the ports that the VM had")
	fs.BoolVar(&f.private, "publish-none", false, "take back all ports of the host that lead into the guest")
	_ = fs.MarkHidden("cpus") // this fails only for a flag that does not exist
	cmd.MarkFlagsMutuallyExclusive("vcpus", "cpus")
	cmd.MarkFlagsMutuallyExclusive("publish", "publish-none")
}

// Apply sets the fields whose flags were given.
func (f *Changes) Apply(c *daemon.Call, patch *hypervisorapi.VMPatch) {
	set(c, "vcpus", &patch.Vcpus, f.vcpus)
	set(c, "cpus", &patch.Vcpus, f.vcpus)
	set(c, "memory", &patch.MemoryMib, f.memory.Count)
	if !changed(c, "network", "bridge", "mac", "ip", "publish", "publish-none") {
		return
	}
	patch.Network = &hypervisorapi.Network{}
	set(c, "network", &patch.Network.Mode, hypervisorapi.NetworkMode(f.network))
	set(c, "bridge", &patch.Network.Bridge, f.bridge)
	set(c, "mac", &patch.Network.Mac, strings.ToLower(f.mac))
	set(c, "ip", &patch.Network.Ip, f.ip)
	if patch.Network.Forwards = f.publish.forwards(); f.private {
		patch.Network.Forwards = &[]hypervisorapi.Forward{}
	}
}
