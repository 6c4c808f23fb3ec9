// Package network provides the networks of a host's virtual machines: tap devices on a bridge,
// addresses that the daemon assigns, and rules that keep guests from impersonating each other.
//
// A VM has one port. Its network is either
//
//   - the managed bridge, which is created when the first VM needs it: IPv4 only, every guest gets
//     one address by DHCP, outgoing traffic uses NAT; or
//   - an existing bridge of the operator: the package only adds a port to it, without DHCP or NAT.
//
// The states of a port are: unknown -> Attach -> attached -> Detach -> leased -> Release ->
// unknown. Attach also goes from leased to attached, with the same address. All three are
// idempotent.
//
// What a guest may send is decided in the bridge family of nftables, before the
// bridge learns from a frame or forwards it. It may send
//
//   - frames with its own Ethernet address, ARP and IPv4 only (no VLAN tags, no other
//     protocols);
//   - ARP and IPv4 with its own address; from 0.0.0.0 only ARP probes and DHCP
//     questions with its own hardware address in them, few a second;
//   - no DHCP answers;
//   - no IPv6 on the managed bridge. On the operator's, IPv6 with any address, but no
//     router advertisements, redirects or DHCPv6 answers, and no fragments of UDP or
//     ICMPv6, in which these could hide. If the VM was attached there without an
//     address, the same holds for IPv4: any address, but no DHCP answers.
//
// Guests on the managed bridge reach guests of their own tenant, unless Options.Isolate is set.
// They reach other tenants' guests only with Options.ShareBridge, neither directly nor through the
// host otherwise. On the host they reach DHCP, DNS and ICMP, and may reply to connections from the
// host. Link-local networks, where clouds serve their machines' credentials, are blocked except for
// DNS. With NAT, nobody outside can open a connection to a guest.
//
// A VM can have a policy (package netpolicy), which judges its packets after these rules: see
// policy_rules_linux.go and docs/decisions/0034. Without one nothing changes for it, except that
// packets of its bridge pass connection tracking while another VM of the bridge has one.
//
// Invariants:
//
//   - Each packet is judged once by the policy of each end, the old or the new one. A tap with a
//     policy is never without it. What cannot be read is dropped.
//   - An address is on disk before a guest gets it. No two VMs have the same address.
//   - A tap without rules may send nothing: devices with our name prefix pass only if they are in
//     the sets. While a daemon is down or restarts, the rules of its taps stay.
//   - The rules of one VM change in one transaction. Rebuilding all rules is another.
//   - Several daemons can share a host: the names of taps and tables, and the bridge, contain the
//     mark of the daemon that made them (Options.Owner). No daemon touches what has another mark.
//
// Packets also pass other tables of the host: if another program's rules drop forwarded packets (as
// Docker's do), they are dropped.
package network
