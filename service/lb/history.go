package lb

import (
	"context"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/series"
	"github.com/mainstay-infra/mainstay/service/lb/datapath"
)

const (
	// historyEvery is the time between two samples of the kernel's counters.
	historyEvery = 10 * time.Second
	// historyGap is the longest time between two samples that are compared. Over a longer gap, it
	// is unknown when the packets were counted.
	historyGap     = time.Minute
	historyMinutes = 24 * 60
	// historyVIPs is the maximum number of VIPs with a history. Each takes 180 KiB.
	historyVIPs = 128
)

// history keeps the traffic of the node and of each of its VIPs for the last day, in memory. It is
// empty after a start.
type history struct {
	now func() time.Time

	mu     sync.Mutex
	rates  *series.Memory[historyKey] // samples are rates per second
	before datapath.Counters
	at     time.Time // of before
}

// historyKey identifies one series, of a VIP or of the node.
type historyKey struct {
	vip  datapath.VIPKey // zero means the node
	kind string          // packets, bytes, flows or dropped
}

// traffic holds the rates of a VIP or of the node.
type traffic struct{ packets, bytes, flows, dropped float64 }

func newHistory(now func() time.Time) *history {
	return &history{now: now, rates: series.NewMemory[historyKey](historyMinutes, 4*(historyVIPs+1))}
}

// run samples the counters until ctx ends.
func (h *history) run(ctx context.Context, c *controller) {
	again := time.NewTicker(historyEvery)
	defer again.Stop()
	for {
		// Counters that cannot be read leave a gap. /readyz reports why.
		if s, plane := c.inputs(); plane != nil {
			if counters, err := plane.Counters(); err == nil {
				h.sample(h.now(), s.plan, counters)
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// sample adds the rates since the last sample. A VIP that the last sample lacks has no rate yet,
// since its counters may date from before the daemon started.
func (h *history) sample(at time.Time, plan []planned, counters datapath.Counters) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, seconds := h.before, at.Sub(h.at).Seconds()
	h.before, h.at = counters, at
	if seconds <= 0 || seconds > historyGap.Seconds() {
		return
	}
	rate := func(before, now uint64) float64 { return float64(series.Increase(before, now)) / seconds }
	var node traffic
	for i := range plan {
		key := plan[i].VIPKey
		was, known := before.VIPs[key]
		is, counted := counters.VIPs[key]
		if !known || !counted {
			continue
		}
		vip := traffic{
			packets: rate(was.Packets, is.Packets),
			bytes:   rate(was.Bytes, is.Bytes),
			flows:   rate(was.Flows, is.Flows),
			dropped: rate(was.DroppedRateLimited, is.DroppedRateLimited) +
				rate(was.DroppedNoBackend, is.DroppedNoBackend) + rate(was.Unserved, is.Unserved),
		}
		node.packets, node.bytes, node.flows = node.packets+vip.packets, node.bytes+vip.bytes, node.flows+vip.flows
		if i < historyVIPs {
			h.add(key, at, vip)
		}
	}
	for reason, is := range counters.Drops {
		if was, known := before.Drops[reason]; known {
			node.dropped += rate(was, is)
		}
	}
	h.add(datapath.VIPKey{}, at, node)
}

func (h *history) add(vip datapath.VIPKey, at time.Time, t traffic) {
	for kind, value := range map[string]float64{
		"packets": t.packets, "bytes": t.bytes, "flows": t.flows, "dropped": t.dropped,
	} {
		h.rates.Add(historyKey{vip, kind}, at, value)
	}
}

// historyPoint holds the traffic of one step, per second.
type historyPoint struct {
	at time.Time
	traffic
}

// read returns the history of a VIP, or of the node for the zero key. Steps without data are left
// out.
func (h *history) read(vip datapath.VIPKey, w series.Window) []historyPoint {
	h.mu.Lock() // so that the four series have the same samples
	defer h.mu.Unlock()
	of := func(kind string) map[time.Time]series.Point {
		at := map[time.Time]series.Point{}
		for _, p := range h.rates.Read(historyKey{vip, kind}, w) {
			at[p.Time] = p
		}
		return at
	}
	bytes, flows, dropped := of("bytes"), of("flows"), of("dropped")
	var points []historyPoint
	for _, p := range h.rates.Read(historyKey{vip, "packets"}, w) {
		// If a VIP was gone for a long time, some of its four series may have been evicted.
		b, f, d := bytes[p.Time], flows[p.Time], dropped[p.Time]
		if b.Count == p.Count && f.Count == p.Count && d.Count == p.Count {
			points = append(points, historyPoint{p.Time, traffic{p.Avg(), b.Avg(), f.Avg(), d.Avg()}})
		}
	}
	return points
}
