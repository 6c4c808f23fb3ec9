package configfile_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

const complete = `
interface: eth0
backendInterfaces: [eth1, eth2]
snatSources: [10.0.0.20, "fd00::20"]
maxFlows: 100000
xdpMode: auto
apiListen: 0.0.0.0:9870
tunnelSource: 10.0.0.9
tunnelSource6: fd00::9
vips:
  - address: 192.0.2.1
    port: 80
    snat: true
    sessionAffinity: clientIP
    rateLimit: 1000
    healthCheck: {type: http, port: 8081, path: "/live?x=1", host: web.example, status: 200-299, interval: 5s, timeout: 500ms, rise: 1, fall: 5}
    backends:
      - {address: 10.0.0.1, port: 8080, weight: 10}
      - {address: 10.0.0.2}
  - address: "2001:db8::1"
    portRange: 8000-8100
    protocol: udp
    mode: dsr-gre
    healthCheck: {type: none}
    backends: [{address: 10.0.0.3}, {address: "fd00::3"}]
  - address: 192.0.2.2
    ports: [53, 54]
    mode: dsr
    backends: [{address: 10.0.0.4, mac: "02:00:00:00:00:01"}]
bgp:
  localASN: 65001
  routerID: 10.0.0.9
  nextHop6: fd00::9
  communities: ["65001:100", no-export, "4200000000:1:2"]
  peers: [{address: 10.0.0.254, asn: 65000, password: hunter2, holdTime: 30s}]
`

func parse(t *testing.T, text string) *configfile.Config {
	t.Helper()
	c, err := configfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestACompleteDocumentIsReadAsItIsMeant(t *testing.T) {
	t.Parallel()
	c := parse(t, complete)
	if c.Interface != "eth0" || c.XDPMode != configfile.XDPAuto || c.APIListen != "0.0.0.0:9870" ||
		c.TunnelSource != netip.MustParseAddr("10.0.0.9") ||
		len(c.VIPs) != 3 {
		t.Fatalf("%+v", c)
	}
	if fmt.Sprint(c.Interfaces(), c.SNATSources, c.MaxFlows) != "[eth0 eth1 eth2] [10.0.0.20 fd00::20] 100000" {
		t.Errorf("%v %v %d", c.Interfaces(), c.SNATSources, c.MaxFlows)
	}
	web := c.VIPs[0]
	want := configfile.HealthCheck{
		Type:     configfile.CheckHTTP,
		Port:     8081,
		Path:     "/live?x=1",
		Host:     "web.example",
		Status:   probe.StatusRange{First: 200, Last: 299},
		Interval: 5 * time.Second,
		Timeout:  500 * time.Millisecond,
		Rise:     1,
		Fall:     5,
	}
	if web.HealthCheck != want || !web.SNAT || web.SessionAffinity != configfile.ClientIPAffinity ||
		web.RateLimit != 1000 ||
		web.Backends[0].Weight != 10 ||
		web.Backends[1].Weight != 1 {
		t.Errorf("%+v", web)
	}
	if c.VIPs[2].Backends[0].MAC.String() != "02:00:00:00:00:01" {
		t.Errorf("%+v", c.VIPs[2])
	}
	if c.BGP.NextHop6 != netip.MustParseAddr("fd00::9") || c.BGP.NextHop4.IsValid() {
		t.Errorf("%+v", c.BGP)
	}
	peer := c.BGP.Peers[0]
	if peer.Password != "hunter2" || peer.HoldTime != 30*time.Second || peer.Port != 179 ||
		fmt.Sprint(c.BGP.Communities) != "[65001:100 no-export 4200000000:1:2]" {
		t.Errorf("%+v", c.BGP)
	}
}

func TestWhatIsLeftOutHasItsDefault(t *testing.T) {
	t.Parallel()
	c := parse(t, "interface: eth0\nvips: [{address: 192.0.2.1, port: 80}]")
	v := c.VIPs[0]
	if c.XDPMode != configfile.XDPGeneric || c.APIListen != "127.0.0.1:9870" || c.BGP != nil ||
		c.MaxFlows != datapath.DefaultFlows ||
		len(c.Interfaces()) != 1 ||
		v.Protocol != datapath.TCP ||
		v.Mode != datapath.NAT ||
		v.SessionAffinity != configfile.NoAffinity {
		t.Errorf("%+v", c)
	}
	if want := (configfile.HealthCheck{Type: configfile.CheckTCP, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}); v.HealthCheck != want {
		t.Errorf("%+v", v.HealthCheck)
	}
	if empty := parse(t, "interface: lo"); len(empty.VIPs) != 0 || len(empty.Expand()) != 0 {
		t.Error("a node needs no VIPs")
	}
}

// vip is a document with one VIP, and backend one with one backend.
func vip(rest string) string { return "interface: eth0\nvips: [{address: 192.0.2.1, " + rest + "}]" }

func backend(rest string) string {
	return vip("port: 80, backends: [{address: 10.0.0.1, " + rest + "}]")
}

func bgp(rest string) string {
	return "interface: eth0\nbgp: {localASN: 1, routerID: 10.0.0.1, peers: [{address: 10.0.0.2, asn: 2, " + rest + "}]}"
}

func router(id, peer string) string {
	return "interface: eth0\nbgp: {localASN: 1, routerID: '" + id + "', peers: [{address: '" + peer + "', asn: 2}]}"
}

func TestWhatIsWrongIsToldWithItsPath(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 81)
	for text, want := range map[string]string{
		"":                                     "the document is empty",
		"[":                                    "is not valid YAML",
		"- a":                                  "must be keys with values, not a list",
		"interface: &a eth0\nb: *a\n---\nc: 1": "second document",
		"vips: []":                             "interface: is required (line 1)",
		"interface: eth0\nvip: 1":              "vip: unknown key; did you mean vips? (line 2)",
		"interface: eth0\nzzzzzzzz: 1":         "zzzzzzzz: unknown key; known are interface, backendInterfaces",
		"interface: a\ninterface: b":           "interface: is given twice, first in line 1 (line 2)",
		"interface: [eth0]":                    "interface: must be a single value, not a list",
		"interface:":                           "interface: must be a single value, not nothing",
		"interface: averylongname0":            "",
		"interface: averyverylongname":         `interface: must be the name of a network interface, as in eth0, not "averyverylongname"`,
		"interface: a/b":                       "interface: must be the name",
		"interface: eth0\nxdpMode: fast":       `xdpMode: must be generic, native, auto, not "fast"`,
		"interface: eth0\napiListen: nine":     `apiListen: must be HOST:PORT`,
		"interface: eth0\napiListen: ':99999'": `apiListen: must end with a port from 0 to 65535, not "99999"`,
		"interface: eth0\nbackendInterfaces: [eth0]":                                        "backendInterfaces[0]: names eth0 a second time",
		"interface: eth0\nbackendInterfaces: [eth1, eth1]":                                  "backendInterfaces[1]: names eth1 a second time",
		"interface: eth0\nbackendInterfaces: [eth1/x]":                                      "backendInterfaces[0]: must be the name of a network interface",
		"interface: eth0\nsnatSources: [10.0.0.1, 10.0.0.1]":                                "snatSources[1]: names 10.0.0.1 a second time",
		"interface: eth0\nsnatSources: [224.0.0.1]":                                         "snatSources[0]: must be an address of this node",
		"interface: eth0\nsnatSources: [192.0.2.1]\nvips: [{address: 192.0.2.1, port: 80}]": "snatSources[0]: 192.0.2.1 is a VIP's address",
		"interface: eth0\nmaxFlows: 10":                                                     "maxFlows: must be",
		"interface: eth0\nsnatSources: [" + seventeen() + "]":                               "snatSources: can have at most 16 of each IP family",
		"interface: eth0\ntunnelSource: fd00::1":                                            "tunnelSource: must be an IPv4 address of this node, not fd00::1",
		"interface: eth0\ntunnelSource6: 10.0.0.1":                                          "tunnelSource6: must be an IPv6 address of this node",
		"interface: eth0\nvips: {}":                                                         "vips: must be a list, not keys with values",
		"interface: eth0\nvips: [x]":                                                        "vips[0]: must be keys with values, not a single value",
		"interface: eth0\nvips:\n- port: 80":                                                "vips[0].address: is required (line 3)",
		"interface: eth0\nvips: [{<<: {port: 80}, address: 192.0.2.1}]":                     "merge keys",
		vip("port: 0"):                                                      "vips[0].port: must be at least 1, not 0",
		vip("port: 65536"):                                                  `vips[0].port: must be at most 65535, not "65536"`,
		vip("port: 80.0"):                                                   `vips[0].port: must be a whole number, not "80.0"`,
		vip("port: http"):                                                   `vips[0].port: must be a whole number, not "http"`,
		vip("mode: nat"):                                                    "vips[0]: needs exactly one of port, portRange and ports",
		vip("port: 80, ports: [81]"):                                        "vips[0]: needs exactly one of port",
		vip("ports: []"):                                                    "vips[0]: needs exactly one of port",
		vip("ports: [80, 0]"):                                               "vips[0].ports[1]: must be at least 1",
		vip("ports: [80, 81, 80]"):                                          "vips[0].ports[2]: 192.0.2.1:80:tcp is the same VIP as vips[0].ports[0]",
		vip("portRange: 80"):                                                "vips[0].portRange: must be FIRST-LAST",
		vip("portRange: 0-80"):                                              "vips[0].portRange: must be FIRST-LAST",
		vip("portRange: 80-80"):                                             "vips[0].portRange: has one port; write port: 80",
		vip("portRange: 90-80"):                                             "vips[0].portRange: must not go down, as 90-80 does",
		vip("port: 80, protocol: sctp"):                                     `vips[0].protocol: must be tcp or udp, not "sctp"`,
		vip("port: 80, mode: dsr-vxlan"):                                    "vips[0].mode: must be one of nat, dsr, dsr-ipip, dsr-gre",
		vip("port: 80, mode: dsr, snat: true"):                              "vips[0].snat: is for mode nat only",
		vip("port: 80, snat: yes"):                                          `vips[0].snat: must be true or false, not "yes"`,
		vip("port: 80, sessionAffinity: client"):                            `vips[0].sessionAffinity: must be clientIP, none, not "client"`,
		vip("port: 80, sessionAffinity: ''"):                                "",
		vip("port: 80, rateLimit: -1"):                                      "vips[0].rateLimit: must be a whole number",
		vip("port: 80, rateLimit: 4294967296"):                              "vips[0].rateLimit: must be at most 4294967295",
		vip("port: 80, healthCheck: {interval: 10}"):                        `vips[0].healthCheck.interval: must be a duration`,
		vip("port: 80, healthCheck: {interval: 1ms}"):                       "vips[0].healthCheck.interval: must be at least 100ms, not 1ms",
		vip("port: 80, healthCheck: {fall: 0}"):                             "vips[0].healthCheck.fall: must be at least 1",
		vip("port: 80, healthCheck: {rise: 101}"):                           "vips[0].healthCheck.rise: must be at most 100",
		vip("port: 80, healthCheck: {type: icmp}"):                          "vips[0].healthCheck.type: must be tcp, http, https, none",
		vip("port: 80, healthCheck: {path: /x}"):                            "vips[0].healthCheck.type: is tcp, which has no path",
		vip("port: 80, healthCheck: {type: http, path: x}"):                 "vips[0].healthCheck.path: must begin with one slash",
		vip("port: 80, healthCheck: {type: http, host: 'a b'}"):             "vips[0].healthCheck.host: must be a host name",
		vip("port: 80, healthCheck: {type: http, status: 99}"):              "vips[0].healthCheck.status: must be a status or a range",
		vip("port: 80, protocol: udp"):                                      "vips[0].healthCheck: a VIP of protocol udp needs a choice: type: none, or the port",
		vip("port: 80, protocol: udp, healthCheck: {port: 81}"):             "",
		backend("port: 0"):                                                  "vips[0].backends[0].port: must be at least 1",
		backend("weight: 0"):                                                "vips[0].backends[0].weight: must be at least 1",
		backend("weight: 1001"):                                             "vips[0].backends[0].weight: must be at most 1000, not 1001",
		backend("name: x"):                                                  "vips[0].backends[0].name: unknown key",
		backend("mac: '02:00:00:00:00:01'"):                                 "vips[0].backends[0].mac: is for mode dsr only, not nat",
		vip("port: 80, mode: dsr, backends: [{address: 10.0.0.1, mac: x}]"): "vips[0].backends[0].mac: must be an Ethernet address",
		vip("port: 80, mode: dsr, backends: [{address: 10.0.0.1, mac: '01:00:00:00:00:01'}]"):                     "not a group's",
		vip("port: 80, mode: dsr, backends: [{address: 10.0.0.1, port: 81}]"):                                     "vips[0].backends[0].port: must be the VIP's port or left out",
		vip("port: 80, mode: dsr, backends: [{address: 10.0.0.1, port: 80}]"):                                     "",
		vip("port: 80, mode: dsr, backends: [{address: fd00::1}]"):                                                "vips[0].backends[0].address: must be of the VIP's family (IPv4) in mode dsr",
		vip("port: 80, backends: [{address: fd00::1}]"):                                                           "vips[0].backends[0].address: must be of the VIP's family (IPv4) in mode nat",
		vip("port: 80, mode: dsr-ipip, backends: [{address: 10.0.0.1}]"):                                          "vips[0].backends[0].address: mode dsr-ipip towards an IPv4 backend needs tunnelSource",
		vip("port: 80, mode: dsr-gre, backends: [{address: fd00::1}]"):                                            "vips[0].backends[0].address: mode dsr-gre towards an IPv6 backend needs tunnelSource6",
		vip("port: 80, backends: [{address: 192.0.2.1}]"):                                                         "vips[0].backends[0].address: is the VIP's own address",
		vip("port: 80, backends: [{address: '::ffff:192.0.2.1'}]"):                                                "is the VIP's own address",
		vip("port: 80, backends: [{address: 224.0.0.1}]"):                                                         "must be the address of a machine",
		vip("port: 80, backends: [{address: 10.0.0.1}, {address: 10.0.0.1, port: 80}]"):                           "vips[0].backends[1]: is the same backend as backends[0]",
		vip("ports: [80, 81], backends: [{address: 10.0.0.1}, {address: 10.0.0.1, port: 81}]"):                    "vips[0].backends[1]: is the same backend as backends[0]",
		vip("portRange: 80-81, backends: [{address: 10.0.0.1, port: 80}]"):                                        "vips[0].backends[0].port: must be left out",
		"interface: eth0\nvips: [{address: 0.0.0.0, port: 80}]":                                                   "vips[0].address: must be a unicast address",
		"interface: eth0\nvips: [{address: 127.0.0.1, port: 80}]":                                                 "vips[0].address: must be a unicast address",
		"interface: eth0\nvips: [{address: ff02::1, port: 80}]":                                                   "vips[0].address: must be a unicast address",
		"interface: eth0\nvips: [{address: 'fe80::1%eth0', port: 80}]":                                            "vips[0].address: must have no zone",
		"interface: eth0\nvips: [{address: host, port: 80}]":                                                      `vips[0].address: must be an IP address, not "host"`,
		"interface: eth0\nvips: [{address: 192.0.2.1, port: 80}, {address: '::ffff:192.0.2.1', port: 80}]":        "vips[1]: 192.0.2.1:80:tcp is the same VIP as vips[0]",
		"interface: eth0\nvips: [{address: 192.0.2.1, portRange: 80-90}, {address: 192.0.2.1, port: 80}]":         "vips[1]: 192.0.2.1:80:tcp is the same VIP as vips[0]",
		"interface: eth0\nvips: [{address: 192.0.2.1, portRange: 80-90}, {address: 192.0.2.1, port: 81}]":         "",
		"interface: eth0\nvips: [{address: 192.0.2.1, portRange: 80-90}, {address: 192.0.2.1, portRange: 90-95}]": "vips[1].portRange: 90-95 overlaps with 80-90 of vips[0], of the same address and protocol (192.0.2.1, tcp)",
		"interface: eth0\nvips: [{address: 192.0.2.1, portRange: 80-90}, {address: 192.0.2.2, portRange: 80-90}]": "",
		"interface: eth0\nbgp: {}":                                                                                               "bgp.localASN: is required",
		"interface: eth0\nbgp: {localASN: 1, routerID: 10.0.0.1}":                                                                "bgp.peers: needs at least one peer",
		"interface: eth0\nbgp: {localASN: 1, routerID: fd00::1, peers: [{address: 10.0.0.2, asn: 1}]}":                           "bgp.routerID: must be an IPv4 address",
		"interface: eth0\nbgp: {localASN: 1, routerID: 10.0.0.1, gracefulRestart: 1500ms, peers: [{address: 10.0.0.2, asn: 2}]}": "bgp.gracefulRestart: must be whole seconds",
		"interface: eth0\nbgp: {localASN: 1, routerID: 10.0.0.1, gracefulRestart: 5000s, peers: [{address: 10.0.0.2, asn: 2}]}":  "bgp.gracefulRestart: must be",
		bgp("holdTime: 2s"):                           "bgp.peers[0].holdTime: must be at least 3s",
		bgp("holdTime: 3500ms"):                       "bgp.peers[0].holdTime: must be whole seconds",
		bgp("password: a, passwordFile: b"):           "bgp.peers[0].passwordFile: cannot be combined with password",
		bgp("password: " + long):                      "bgp.peers[0].password: must have 1 to 80 characters",
		bgp("password: \"\\u00e4\""):                  "bgp.peers[0].password: must have printable ASCII characters only",
		bgp("password: *x"):                           "does not name an anchor",
		bgp("password: ''"):                           "bgp.peers[0].password: must not be empty",
		bgp("passwordFile: a, password: ''"):          "bgp.peers[0].password: must not be empty",
		router("239.0.0.1", "10.0.0.2"):               "bgp.routerID: must be an IPv4 address",
		router("255.255.255.255", "10.0.0.2"):         "bgp.routerID: must be an IPv4 address",
		router("::ffff:10.0.0.1", "10.0.0.2"):         "bgp.routerID: must be an IPv4 address",
		router("10.0.0.1", "255.255.255.255"):         "bgp.peers[0].address: must be the address of a machine",
		router("10.0.0.1", "224.0.0.5"):               "bgp.peers[0].address: must be the address of a machine",
		router("10.0.0.1", "ff02::1"):                 "bgp.peers[0].address: must be the address of a machine",
		router("10.0.0.1", "fe80::1"):                 "bgp.peers[0].address: fe80::1 is a link-local address",
		router("10.0.0.1", "169.254.0.1"):             "",
		bgp("port: 179") + "\ntunnelSource6: fe80::1": "tunnelSource6: fe80::1 is a link-local address",
		"interface: eth0\nbgp: {localASN: 1, routerID: 10.0.0.1, nextHop6: 'fe80::1', peers: [{address: 10.0.0.2, asn: 1}]}":         "bgp.nextHop6: fe80::1 is a link-local address",
		vip("port: 80, backends: [{address: 127.0.0.1}]"):                                                                            "vips[0].backends[0].address: must be the address of a machine",
		vip("port: 80, backends: [{address: 127.255.0.1}]"):                                                                          "vips[0].backends[0].address: must be the address of a machine",
		vip("port: 80, backends: [{address: 240.0.0.1}]"):                                                                            "vips[0].backends[0].address: must be the address of a machine",
		vip("port: 80, healthCheck: {type: http, host: 'a:0'}"):                                                                      "vips[0].healthCheck.host: must end with a port from 1 to 65535",
		vip("port: 80, healthCheck: {type: http, host: 'a:65536'}"):                                                                  "vips[0].healthCheck.host: must end with a port from 1 to 65535",
		vip("port: 80, healthCheck: {type: http, host: 'a:x'}"):                                                                      "vips[0].healthCheck.host: must end with a port from 1 to 65535",
		vip("port: 80, healthCheck: {type: http, host: 'a:'}"):                                                                       "vips[0].healthCheck.host: must end with a port from 1 to 65535",
		vip("port: 80, healthCheck: {type: http, host: '[::1]:y'}"):                                                                  "vips[0].healthCheck.host: must end with a port from 1 to 65535",
		vip("port: 80, healthCheck: {type: http, host: 'a:8080'}"):                                                                   "",
		vip("port: 80, healthCheck: {type: http, host: '[::1]:80'}"):                                                                 "",
		vip("port: 80, healthCheck: {type: http, host: '[::1]'}"):                                                                    "",
		vip("port: 80, healthCheck: {type: http, host: '2001:db8::1'}"):                                                              "",
		"interface: eth0\nbgp: {localASN: 1, routerID: 10.0.0.1, nextHop4: 'fd00::1', peers: [{address: 10.0.0.2, asn: 1}]}":         "bgp.nextHop4: must be an IPv4 address",
		"interface: eth0\nbgp: {localASN: 1, routerID: 10.0.0.1, nextHop6: '::1', peers: [{address: 10.0.0.2, asn: 1}]}":             "bgp.nextHop6: must be an IPv6 address",
		"interface: eth0\nbgp: {localASN: 1, routerID: 10.0.0.1, communities: ['1:65536'], peers: [{address: 10.0.0.2, asn: 2}]}":    "bgp.communities[0]: must be ASN:VALUE",
		"interface: eth0\nbgp: {localASN: 1, routerID: 10.0.0.1, communities: ['1:1', '1:1'], peers: [{address: 10.0.0.2, asn: 2}]}": "bgp.communities[1]: is given twice",
	} {
		_, err := configfile.Parse([]byte(text))
		if want == "" {
			if err != nil {
				t.Errorf("%s\nis refused: %v", text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || !fault.Is(err, fault.Invalid) {
			t.Errorf("%s\nsays %v\nwant %s", text, err, want)
		}
	}
}

func TestAllProblemsAreToldAtOnceInTheOrderOfTheFile(t *testing.T) {
	t.Parallel()
	_, err := configfile.Parse(
		[]byte(
			"interfaces: eth0\nvips:\n  - address: 192.0.2.1\n    port: 99999\n    backends:\n      - {address: x}\n",
		),
	)
	want := `4 problems:
  interfaces: unknown key; did you mean interface? (line 1)
  interface: is required (line 1)
  vips[0].port: must be at most 65535, not "99999" (line 4)
  vips[0].backends[0].address: must be an IP address, not "x" (line 6)`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestManyProblemsAreCut(t *testing.T) {
	t.Parallel()
	_, err := configfile.Parse([]byte("interface: eth0\nvips: [" + strings.Repeat("{},", 1000) + "]"))
	if err == nil || !strings.HasPrefix(err.Error(), "1000 problems:") ||
		!strings.HasSuffix(err.Error(), "and 950 more") {
		t.Errorf("%.300v", err)
	}
}

func TestLimitsAreKept(t *testing.T) {
	t.Parallel()
	vips := func(n int, one func(i int) string) string {
		var b strings.Builder
		b.WriteString("interface: eth0\nvips:\n")
		for i := range n {
			fmt.Fprintf(&b, "- %s\n", one(i))
		}
		return b.String()
	}
	address := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }
	many := func(i int) string { return "{address: " + address(i) + ", port: 80}" }
	// 1-65534 takes 30 blocks.
	wide := func(i int) string { return "{address: " + address(i) + ", portRange: 1-65534}" }
	pool := "interface: eth0\nvips:\n- {address: 10.9.0.1, port: 1, backends: &pool ["
	for i := range 128 {
		pool += fmt.Sprintf("{address: 10.8.0.%d},", i)
	}
	pool += "]}\n"
	for i := range 512 {
		pool += fmt.Sprintf("- {address: 10.9.0.1, port: %d, backends: *pool}\n", i+2)
	}
	for text, want := range map[string]string{
		vips(4096, many): "", vips(4097, many): "vips: are 4097, each port of a list counted; a node has at most 4096",
		vips(546, wide): "", vips(547, wide): "take 16410 blocks in all; a node has at most 16384",
		pool:                              "vips: have 65664 backends in all; a node has at most 65535",
		"#" + strings.Repeat("x", 16<<20): "larger than 16777216 bytes",
		vip("ports: [" + strings.Repeat("1,", 65536) + "]"): "vips[0].ports: has 65536 items",
	} {
		_, err := configfile.Parse([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60s: %.200v, want %q", text, err, want)
		}
	}
}

func TestAliasesCannotMakeADocumentHuge(t *testing.T) {
	t.Parallel()
	text := "interface: eth0\nvips:\n- &v\n  address: 10.9.0.1\n  ports: &p [" + strings.Repeat(
		"7,", 60000,
	) + "]\n" + strings.Repeat("- *v\n", 60000)
	_, err := configfile.Parse([]byte(text))
	if err == nil || !strings.Contains(err.Error(), "more than 524288 values") {
		t.Errorf("%.300v", err)
	}
}

func TestPasswordsAreNotPrinted(t *testing.T) {
	t.Parallel()
	c := parse(t, complete)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(format, *c.BGP); strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", format, text)
		}
	}
}

func TestAPasswordCanComeFromAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("md5", "hunter2\n")
	c, err := configfile.Load(write("lb.yaml", bgp("passwordFile: md5")))
	if err != nil || c.BGP.Peers[0].Password != "hunter2" {
		t.Errorf("%v %v", c, err)
	}
	_, err = configfile.Load(write("lb.yaml", bgp("passwordFile: gone")))
	if err == nil ||
		!strings.Contains(err.Error(), "bgp.peers[0].passwordFile: cannot read "+filepath.Join(dir, "gone")) {
		t.Errorf("%v", err)
	}
	write("md5", "\n")
	_, err = configfile.Load(write("lb.yaml", bgp("passwordFile: md5")))
	if err == nil || !strings.Contains(err.Error(), "must have 1 to 80 characters") {
		t.Errorf("%v", err)
	}
	if _, err = configfile.Load(filepath.Join(dir, "none.yaml")); err == nil ||
		!strings.Contains(err.Error(), "cannot read") {
		t.Errorf("%v", err)
	}
}

func seventeen() string {
	var all []string
	for i := range 17 {
		all = append(all, fmt.Sprintf("10.0.1.%d", i+1))
	}
	return strings.Join(all, ", ")
}
