package lb

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/lb/configfile"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
	"github.com/mainstay-infra/mainstay/service/lb/probe"
)

// retryEvery is the time between two attempts at what failed: opening the plane, applying,
// announcing. The interfaces are checked as often, in case notifications about them were lost.
const retryEvery = 10 * time.Second

// applyWait is the maximum time that a request waits for the kernel to take its change.
const applyWait = 10 * time.Second

// controller owns all state of the node. Methods change the inputs and wake run; only run talks to
// plane, prober and speaker.
type controller struct {
	log     *slog.Logger
	open    func(context.Context, PlaneOptions) (Plane, Hops, error)
	prober  Prober
	speaker Speaker
	metrics *metrics
	bpfDir  string
	wake    chan struct{} // has a value when run has something to do

	mu  sync.Mutex
	cfg *configfile.Config // the current document
	in  inputs
	ids backendIDs
	// checked holds the backends that are probed.
	checked map[probe.ID]bool
	// changes numbers the changes. When run has caught up, it closes settled and replaces it.
	changes, settledChanges uint64
	settled                 chan struct{}
	applyErr                error // of the last attempt
	speakErr                error
	plane                   Plane // nil until there is a VIP and opening has succeeded
	planeErr                error // why opening failed, or why the plane is cut off from its interface
	hops                    Hops
	inKernel                []datapath.VIP
	counters                datapath.Counters // from the last successful read
	announced               []netip.Addr

	// The fields below are used only by run.
	given *configfile.Config // the document that prober, speaker and hops last received
	// tookOver means that the kernel was already balancing when the plane was opened, and that the
	// speaker has not been configured with that yet.
	tookOver  bool
	resolving sync.WaitGroup
}

func (c *controller) init() {
	c.wake, c.settled = make(chan struct{}, 1), make(chan struct{})
	c.in = inputs{
		health:       map[probe.ID]health{},
		drained:      map[int]bool{},
		orchestrated: map[string]map[datapath.BackendKey]bool{},
		weights:      map[probe.ID]uint16{},
		hop:          func(Target) datapath.NextHop { return datapath.NextHop{} },
	}
}

// changed records that the inputs have changed, and returns the number of the change. The caller
// holds the lock.
func (c *controller) changed() (number uint64) {
	c.changes++
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return c.changes
}

// adopt makes cfg the current configuration. It returns an error if that takes a restart.
// listenFixed means that the address of the API does not come from the document.
func (c *controller) adopt(cfg *configfile.Config, listenFixed bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg != nil {
		if err := needsRestart(c.cfg, cfg, c.plane != nil, listenFixed); err != nil {
			return err
		}
	}
	services := cfg.Expand()
	c.in.health = carryHealth(c.in.health, c.in.services, services)
	c.cfg, c.in.services, c.in.devices = cfg, services, cfg.Interfaces()
	c.in.ids = c.ids.update(services)
	c.checked = checkedIn(services)
	c.forgetRemoved()
	c.changed()
	return nil
}

// needsRestart returns an error for the first change that takes a restart of the process.
func needsRestart(old, next *configfile.Config, attached, listenFixed bool) error {
	for _, setting := range []struct {
		key       string
		fixed     bool
		old, next string
	}{
		{"apiListen", !listenFixed, old.APIListen, next.APIListen},
		{"interface", attached, old.Interface, next.Interface},
		{"backendInterfaces", attached, listText(old.BackendInterfaces), listText(next.BackendInterfaces)},
		{"snatSources", attached, listText(old.SNATSources), listText(next.SNATSources)},
		{"maxFlows", attached, strconv.Itoa(old.MaxFlows), strconv.Itoa(next.MaxFlows)},
		{"xdpMode", attached, string(old.XDPMode), string(next.XDPMode)},
		{"tunnelSource", attached, addressText(old.TunnelSource), addressText(next.TunnelSource)},
		{"tunnelSource6", attached, addressText(old.TunnelSource6), addressText(next.TunnelSource6)},
	} {
		if setting.fixed && setting.old != setting.next {
			return fault.InvalidField(
				setting.key,
				"is %s now and would be %s; this takes a restart, and until then nothing of the file is applied",
				setting.old, setting.next,
			)
		}
	}
	return nil
}

func listText[T any](list []T) string {
	if len(list) == 0 {
		return "not given"
	}
	return fmt.Sprint(list)
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return "not given"
	}
	return a.String()
}

// carryHealth returns the known health of the backends that stay. Backends that were not checked
// before count as healthy.
func carryHealth(known map[probe.ID]health, old, next []configfile.Service) map[probe.ID]health {
	before := maps.Clone(known)
	for i := range old {
		if old[i].Check.Type == configfile.CheckNone {
			for _, e := range old[i].Endpoints {
				before[probe.ID{VIP: old[i].VIPKey, Backend: e.BackendKey}] = health{
					healthy: true,
					detail:  "not checked yet",
				}
			}
		}
	}
	checked := checkedIn(next)
	maps.DeleteFunc(before, func(id probe.ID, _ health) bool { return !checked[id] })
	return before
}

// forgetRemoved drops drains and weights of backends that are no longer configured. The caller
// holds the lock.
func (c *controller) forgetRemoved() {
	ids, pairs := map[int]bool{}, map[probe.ID]bool{}
	for _, id := range c.in.ids {
		ids[id] = true
	}
	for i := range c.in.services {
		for _, e := range c.in.services[i].Endpoints {
			pairs[probe.ID{VIP: c.in.services[i].VIPKey, Backend: e.BackendKey}] = true
		}
	}
	maps.DeleteFunc(c.in.drained, func(id int, _ bool) bool { return !ids[id] })
	maps.DeleteFunc(c.in.weights, func(id probe.ID, _ uint16) bool { return !pairs[id] })
}

// checkedIn returns the backends that are probed for services.
func checkedIn(services []configfile.Service) map[probe.ID]bool {
	ids := map[probe.ID]bool{}
	for i := range services {
		if services[i].Check.Type == configfile.CheckNone {
			continue
		}
		for _, e := range services[i].Endpoints {
			ids[probe.ID{VIP: services[i].VIPKey, Backend: e.BackendKey}] = true
		}
	}
	return ids
}

// healthChanged records a result of the prober.
func (c *controller) healthChanged(id probe.ID, healthy bool, reason string) {
	c.mu.Lock()
	wanted := c.checked[id]
	if wanted {
		c.in.health[id] = health{healthy, reason}
		c.changed()
	}
	c.mu.Unlock()
	if !wanted {
		return // removed in the meantime
	}
	level, text := slog.LevelInfo, "backend is healthy"
	if !healthy {
		level, text = slog.LevelWarn, "backend is down"
	}
	c.log.Log(
		context.Background(), level, text, "vip", id.VIP.String(), "backend", id.Backend.String(), "reason", reason,
	)
}

// drain starts or ends an operator's drain. It returns once the kernel has the change.
func (c *controller) drain(ctx context.Context, id int, on bool) error {
	c.mu.Lock()
	if !c.hasBackend(id) {
		c.mu.Unlock()
		return noBackend(id)
	}
	if on {
		c.in.drained[id] = true
	} else {
		delete(c.in.drained, id)
	}
	number := c.changed()
	c.mu.Unlock()
	return c.await(ctx, number)
}

// setWeight overrides a backend's weight at one VIP, or at all VIPs that it serves now if vip is
// empty. A weight of 0 restores the document's. It returns once the kernel has the change.
func (c *controller) setWeight(ctx context.Context, id int, weight uint16, vip string) error {
	name, err := canonicalName(vip)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if !c.hasBackend(id) {
		c.mu.Unlock()
		return noBackend(id)
	}
	matched := false
	for i := range c.in.services {
		s := &c.in.services[i]
		if name != "" && s.String() != name {
			continue
		}
		for _, e := range s.Endpoints {
			if c.in.ids[e.BackendKey] != id {
				continue
			}
			matched = true
			if pair := (probe.ID{VIP: s.VIPKey, Backend: e.BackendKey}); weight == 0 {
				delete(c.in.weights, pair)
			} else {
				c.in.weights[pair] = weight
			}
		}
	}
	if !matched {
		c.mu.Unlock()
		return fault.New(fault.NotFound, "backend %d does not serve the VIP %s", id, name).WithCode("vip_not_found")
	}
	number := c.changed()
	c.mu.Unlock()
	return c.await(ctx, number)
}

// canonicalName returns the name of a VIP in canonical form. An empty name stays empty.
func canonicalName(vip string) (string, error) {
	if vip == "" {
		return "", nil
	}
	address, port, protocol, err := datapath.ParseVIPName(vip)
	if err != nil {
		return "", fault.InvalidField("vip", "%s", fault.From(err).Message)
	}
	return datapath.VIPKey{Address: address, Port: port, Protocol: protocol}.String(), nil
}

func noBackend(id int) error { return fault.New(fault.NotFound, "no backend has the id %d", id) }

// hasBackend reports whether the ID is in use. The caller holds the lock.
func (c *controller) hasBackend(id int) bool {
	for _, known := range c.in.ids {
		if known == id {
			return true
		}
	}
	return false
}

// setOrchestratorDrains replaces the drains of one orchestrator.
func (c *controller) setOrchestratorDrains(source string, backends []datapath.BackendKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(backends) == 0 {
		delete(c.in.orchestrated, source)
	} else {
		drains := make(map[datapath.BackendKey]bool, len(backends))
		for _, b := range backends {
			drains[datapath.BackendKey{Address: b.Address.Unmap(), Port: b.Port}] = true
		}
		c.in.orchestrated[source] = drains
	}
	c.changed()
}

// await waits until run has handled a change. It returns an error if the kernel refused the change,
// or if that takes longer than applyWait.
func (c *controller) await(ctx context.Context, number uint64) error {
	ctx, cancel := context.WithTimeout(ctx, applyWait)
	defer cancel()
	for {
		c.mu.Lock()
		done, err, settled := c.settledChanges >= number, c.applyErr, c.settled
		c.mu.Unlock()
		if done {
			if err == nil {
				return nil
			}
			return fault.New(
				fault.Unavailable,
				"the change is noted, but the kernel did not take it; it is tried again every %s: %v", retryEvery,
				err,
			).WithCode("not_applied")
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return fault.Wrap(
				fault.Unavailable, ctx.Err(), "the change is noted, but the kernel did not have it after %s", applyWait,
			).WithCode("not_applied")
		}
	}
}

// dialProbe connects for health checks in the DSR modes. If the next hop of the backend is not
// known yet, as after a start, dialProbe waits for it until ctx ends.
func (c *controller) dialProbe(ctx context.Context, id probe.ID, address netip.AddrPort) (net.Conn, error) {
	for {
		c.mu.Lock()
		plane, settled := c.plane, c.settled
		c.mu.Unlock()
		var conn net.Conn
		err := errNotAttached
		if plane != nil {
			conn, err = plane.DialProbe(ctx, id.VIP, id.Backend, address.Port())
		}
		if !fault.Is(err, fault.Unavailable) {
			return conn, err
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// errNotAttached has the type error, and not *fault.Error, so that other errors fit into the same
// variable.
var errNotAttached error = fault.New(
	fault.Unavailable,
	"nothing is attached to the interface, so no packet is balanced; /readyz says why",
)

// explain looks up in the kernel's tables which backend the next packet of a flow would get.
func (c *controller) explain(flow datapath.Flow) (datapath.Explanation, error) {
	c.mu.Lock()
	plane := c.plane
	c.mu.Unlock()
	if plane == nil {
		return datapath.Explanation{}, errNotAttached
	}
	e, err := plane.Explain(flow)
	if err != nil {
		return e, fault.Wrap(fault.Unavailable, err, "the kernel's maps cannot be read")
	}
	return e, nil
}

// standsOn describes what the node balances with.
func (c *controller) standsOn() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.plane != nil:
		return "XDP (" + c.plane.AttachedMode() + ") on " + strings.Join(c.plane.Interfaces(), ", ")
	case len(c.in.services) == 0:
		return "no VIPs yet"
	}
	return "nothing attached"
}

// notReady returns why the node does not balance as configured, or "" if it does.
func (c *controller) notReady() string {
	c.mu.Lock()
	plane, planeErr, applyErr, settled, none := c.plane, c.planeErr, c.applyErr, c.settledChanges, len(
		c.in.services,
	) == 0
	c.mu.Unlock()
	switch {
	case plane == nil && none && settled > 0:
		return "" // nothing to do
	case planeErr != nil:
		return strings.TrimSpace(planeErr.Error())
	case applyErr != nil:
		return "the configuration could not be applied: " + applyErr.Error()
	case settled == 0:
		return "the configuration is not applied yet"
	case plane == nil:
		return "the interface is being attached to"
	}
	if _, err := plane.Counters(); err != nil {
		return "the kernel's maps cannot be read: " + err.Error()
	}
	return ""
}
