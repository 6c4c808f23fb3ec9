package lb

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"testing"
	"time"

	lbapi "github.com/mainstay-infra/mainstay/api/lb"
	"github.com/mainstay-infra/mainstay/kit/contract/contracttest"
	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

var began = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func vipAt(port uint16) datapath.VIPKey {
	return datapath.VIPKey{
		Address: netip.MustParseAddr("192.0.2.1"), Port: port, LastPort: port, Protocol: datapath.TCP,
	}
}

// byMinute are the points of a history as "minute: packets bytes flows dropped".
func (h *history) byMinute(vip datapath.VIPKey) (out []string) {
	for _, p := range h.read(vip, series.Window{From: began, To: began.Add(time.Hour), Step: time.Minute}) {
		out = append(out, fmt.Sprintf(
			"%g: %g %g %g %g", p.at.Sub(began).Minutes(), p.packets, p.bytes, p.flows, p.dropped,
		))
	}
	return out
}

func TestTheHistoryHasRatesOfTheNodeAndOfEachVIP(t *testing.T) {
	t.Parallel()
	h := newHistory(time.Now)
	plan := []planned{{VIP: datapath.VIP{VIPKey: vipAt(80)}}, {VIP: datapath.VIP{VIPKey: vipAt(81)}}}
	feed := func(after time.Duration, web, other uint64, drops map[string]uint64) {
		h.sample(began.Add(after), plan, datapath.Counters{
			VIPs: map[datapath.VIPKey]datapath.VIPCounters{
				vipAt(80): {Packets: web, Bytes: 100 * web, Flows: web / 10, DroppedRateLimited: web, Unserved: web},
				vipAt(81): {Packets: other},
			},
			Drops: drops,
		})
	}
	feed(0, 5000, 1000, map[string]uint64{"ttl": 7}) // nobody knows since when
	feed(10*time.Second, 5100, 1000, map[string]uint64{"ttl": 7})
	feed(20*time.Second, 5300, 1010, map[string]uint64{"ttl": 27})
	feed(60*time.Second, 5300, 1010, map[string]uint64{"ttl": 27, "new": 1000})
	feed(70*time.Second, 50, 1010, map[string]uint64{"ttl": 27, "new": 1000}) // it began again
	for vip, want := range map[datapath.VIPKey]string{
		{}:        "[0: 15.5 1500 1.5 1 1: 2.5 250 0.25 0]",
		vipAt(80): "[0: 15 1500 1.5 30 1: 2.5 250 0.25 5]",
		vipAt(81): "[0: 0.5 0 0 0 1: 0 0 0 0]",
		vipAt(82): "[]",
	} {
		if got := h.byMinute(vip); fmt.Sprint(got) != want {
			t.Errorf("%s: %s, want %s", vip, got, want)
		}
	}
}

func TestNothingIsKnownOfATimeInWhichTheCountersWereNotRead(t *testing.T) {
	t.Parallel()
	h := newHistory(time.Now)
	plan := []planned{{VIP: datapath.VIP{VIPKey: vipAt(80)}}}
	for after, packets := range []uint64{100, 200, 900, 910} {
		at := began.Add([]time.Duration{0, 10 * time.Second, 10 * time.Minute, 10*time.Minute + 10*time.Second}[after])
		h.sample(at, plan, datapath.Counters{
			VIPs: map[datapath.VIPKey]datapath.VIPCounters{vipAt(80): {Packets: packets}},
		})
	}
	if got := h.byMinute(vipAt(80)); fmt.Sprint(got) != "[0: 10 0 0 0 10: 1 0 0 0]" {
		t.Errorf("%s", got)
	}
}

func TestTheHistoryIsAnsweredForASpanInAtMostSoManyPoints(t *testing.T) {
	t.Parallel()
	now := began.Add(12*time.Hour + 30*time.Second)
	n := start(t, unchecked, func(_ *Config, d *Deps) {
		d.Now = func() time.Time { return now }
		d.Open = func(context.Context, PlaneOptions) (Plane, Hops, error) {
			p := newMemoryPlane()
			p.countersErr = errors.New("the samples come from this test alone")
			return p, p, nil
		}
	})
	for i := range 12 * 60 {
		n.service.history.sample(
			began.Add(time.Duration(i)*time.Minute), []planned{{VIP: datapath.VIP{VIPKey: vipAt(80)}}},
			datapath.Counters{VIPs: map[datapath.VIPKey]datapath.VIPCounters{vipAt(80): {Packets: uint64(600 * i)}}},
		)
	}
	get := func(query url.Values) lbapi.History {
		return contracttest.As[lbapi.History](n.call("GET", "/history?"+query.Encode(), longB, "").Want(200))
	}
	h := get(nil)
	if h.StepSeconds != 60 || !h.Now.Equal(now) || !h.From.Equal(began.Add(11*time.Hour)) ||
		!h.To.Equal(began.Add(12*time.Hour+time.Minute)) || len(h.Points) != 60 ||
		!h.Points[0].At.Equal(h.From) || h.Points[0].Packets != 10 {
		t.Errorf("%+v", h)
	}
	web := url.Values{"vip": {"192.0.2.1:80:tcp"}, "since": {began.Format(time.RFC3339)}, "points": {"15"}}
	h = get(web)
	if h.StepSeconds != 3600 || len(h.Points) != 12 || h.Points[3].Packets != 10 || h.Points[3].Flows != 0 {
		t.Errorf("%+v", h)
	}
	if h := get(url.Values{"vip": {"192.0.2.1:81:tcp"}}); len(h.Points) != 0 {
		t.Errorf("a VIP without traffic: %+v", h)
	}
	for query, field := range map[string]string{
		"points=1": "points", "points=1001": "points", "since=yesterday": "since", "since=2026-03-05T12:00:00Z": "since",
		"since=1926-03-05T12:00:00Z": "since",
	} {
		n.call("GET", "/history?"+query, longB, "").Refused(400, "invalid", field)
	}
	n.call("GET", "/history?vip=192.0.2.9:80:tcp", longB, "").Refused(404, "vip_not_found", "")
}

func TestTheHistoryOfAVIPThatComesBackIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	h := newHistory(time.Now)
	packets := uint64(0)
	sample := func(at time.Time, ports ...uint16) {
		var plan []planned
		counters := map[datapath.VIPKey]datapath.VIPCounters{}
		packets += 600
		for _, port := range ports {
			plan = append(plan, planned{VIP: datapath.VIP{VIPKey: vipAt(port)}})
			counters[vipAt(port)] = datapath.VIPCounters{Packets: packets, Bytes: packets, Flows: packets}
		}
		h.sample(at, plan, datapath.Counters{VIPs: counters})
	}
	sample(began, 80)
	sample(began.Add(time.Minute), 80)
	var others []uint16
	for port := range uint16(historyVIPs) {
		others = append(others, 1000+port)
	}
	for minute := 2; minute < 4; minute++ {
		sample(began.Add(time.Duration(minute)*time.Minute), others...)
	}
	h.rates.Add(historyKey{vipAt(80), "packets"}, began.Add(time.Minute), 10) // as if this one had stayed
	for minute := 4; minute < 6; minute++ {
		sample(began.Add(time.Duration(minute)*time.Minute), 80)
	}
	if got := h.byMinute(vipAt(80)); fmt.Sprint(got) != "[5: 10 10 10 0]" {
		t.Errorf("%s", got)
	}
}
