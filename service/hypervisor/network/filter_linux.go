package network

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// canFilter returns a fault.Unavailable if the kernel cannot pass bridged packets to connection
// tracking. The module is not loaded here: when it is, it filters all bridges of the host.
func canFilter() error {
	if _, err := os.Stat("/proc/sys/net/bridge"); errors.Is(err, fs.ErrNotExist) {
		return unavailable(err, "network policies take the kernel module br_netfilter; load it (modprobe br_netfilter) "+
			"and set net.bridge.bridge-nf-call-iptables and -ip6tables to 0, so that it filters only bridges of VMs with policies")
	}
	return nil
}

// filter passes the packets of one bridge to connection tracking. The setting of the host for all
// bridges stays as it is.
func (m *Manager) filter(bridge string) error {
	link, err := findLink(bridge)
	if err != nil || link == nil {
		return err
	}
	if has, err := filters(link); has || err != nil {
		return err
	}
	m.switched[bridge] = true
	m.o.Log.Info("bridged packets now pass connection tracking, for the network policies of VMs", "bridge", bridge)
	return setFilter(link, 1)
}

// filterAll calls filter for the bridges of VMs that have policies.
func (m *Manager) filterAll() error {
	done := map[string]bool{}
	for _, e := range m.enforced {
		if done[e.bridge] {
			continue
		}
		done[e.bridge] = true
		if err := m.filter(e.bridge); err != nil {
			return err
		}
	}
	return nil
}

// settleFilter undoes filter when no VM of the bridge has a policy any more. On a bridge of the
// operator's, it undoes only what this process did.
func (m *Manager) settleFilter(bridge string) error {
	if m.filtered(bridge) || bridge != m.o.Bridge && !m.switched[bridge] {
		return nil
	}
	delete(m.switched, bridge)
	link, err := findLink(bridge)
	if err != nil || link == nil {
		return err
	}
	if has, err := filters(link); !has || err != nil {
		return err
	}
	return setFilter(link, 0)
}

const callIPTables, callIP6Tables = 36, 37 // IFLA_BR_NF_CALL_IPTABLES, IFLA_BR_NF_CALL_IP6TABLES

// setFilter sets nf_call_iptables and nf_call_ip6tables of a bridge.
func setFilter(bridge netlink.Link, on byte) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(bridge.Attrs().Index) //nolint:gosec // the kernel's indexes have 32 bits
	request.AddData(message)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, []byte("bridge"))
	data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
	data.AddRtAttr(callIPTables, []byte{on})
	data.AddRtAttr(callIP6Tables, []byte{on})
	request.AddData(info)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return unavailable(err, "this kernel has no br_netfilter, which network policies take")
	}
	return kernel(err)
}

// filters reports whether both settings of a bridge are on.
func filters(bridge netlink.Link) (bool, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(bridge.Attrs().Index) //nolint:gosec // the kernel's indexes have 32 bits
	request.AddData(message)
	replies, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil || len(replies) == 0 {
		return false, kernel(err)
	}
	on := 0
	attributes, err := nl.ParseRouteAttr(replies[0][unix.SizeofIfInfomsg:])
	for _, a := range attributes {
		if a.Attr.Type&^unix.NLA_F_NESTED != unix.IFLA_LINKINFO || err != nil {
			continue
		}
		var inside, data []syscall.NetlinkRouteAttr
		if inside, err = nl.ParseRouteAttr(a.Value); err != nil {
			continue
		}
		for _, i := range inside {
			if i.Attr.Type&^unix.NLA_F_NESTED != nl.IFLA_INFO_DATA {
				continue
			}
			if data, err = nl.ParseRouteAttr(i.Value); err != nil {
				continue
			}
			for _, d := range data {
				if (d.Attr.Type == callIPTables || d.Attr.Type == callIP6Tables) && bytes.Equal(d.Value, []byte{1}) {
					on++
				}
			}
		}
	}
	return on == 2, kernel(err)
}
