// Package network is what a host does so that its virtual machines have a network:
// tap devices on a bridge, addresses that the daemon knows, and rules by which no
// guest can pretend to be another.
//
// A VM has one port. Its network is either
//
//   - the managed bridge, which is made when the first VM needs it: IPv4 only, every
//     guest has one address that it gets by DHCP, the way out is by NAT; or
//   - a bridge of the operator's, which must be there: the package adds a port to it
//     and nothing else, no DHCP and no NAT.
//
// The states of a port are: unknown -> Attach -> attached -> Detach -> leased ->
// Release -> unknown. Attach goes from leased to attached as well, with the same
// address, and every one of them can be said twice.
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
// Guests of the managed bridge reach those of their own tenant, unless Options.Isolate, and those of
// other tenants only with Options.ShareBridge: neither directly nor by way of the host. Of the host
// they reach DHCP, DNS and ICMP, and what the host has asked them for. Link-local
// networks, where clouds serve the credentials of their machines, are closed to them
// but for DNS. With NAT nobody outside begins a connection to a guest.
//
// Invariants:
//
//   - An address is on disk before a guest has it; no two VMs have the same.
//   - A tap whose rules are missing may send nothing: names with the prefix of ours
//     pass only if they are in the sets. While a daemon is down or restarts, the rules
//     of its taps stay.
//   - The rules of one VM change in one transaction, the rebuilding of all is another.
//   - Several daemons can share a host: the names of taps and tables, and the bridge, bear the
//     mark of the daemon that made them (Options.Owner). None touches what has another mark.
//
// Other tables of the host see the packets, too: where another program's rules refuse
// to forward (as Docker's do), they win.
package network
