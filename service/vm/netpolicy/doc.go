// Package netpolicy holds the rules of network policy: the documents that people write, and what
// they mean together for one VM. It is pure: it reads no clock, no database and no network.
//
//	document.go   what the hypervisor daemon enforces
//	rule.go       rules of policies of VMs and of security groups
//	policy.go     a VM's policy, a security group
//	cilium.go     network policies in Cilium's form; ciliumrule.go, reader.go: how they are read
//	selector.go   which labels a selector selects
//	identity.go   sets of labels and their numbers
//	address.go    addresses and networks
//	effective.go  from all of these to one document; source.go: from one rule
//
// # Invariants
//
//   - A packet is denied if any rule denies it, else allowed if any rule allows it, else the default
//     of its direction applies. So a deny only ever makes a policy stricter.
//   - A direction denies by default once a policy with rules in it applies to the VM, unless that
//     policy says otherwise. One policy that denies by default suffices.
//   - A rule whose peers are nobody now matches nothing. It never turns into a rule for everybody.
//   - Selectors, groups and entities mean VMs of the VM's own tenant, also in policies of every tenant.
//   - An address that another VM of the host has, too, is not used to allow anything.
//   - The order of the inputs does not matter.
//   - What is not supported is refused with its path, and changes nothing.
//
// It imports nothing of the service.
package netpolicy
