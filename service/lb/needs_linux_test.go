package lb

import (
	"testing"
)

func TestWhatAMachineLacksIsToldWithItsCure(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{
		"Name:\tx\nCapEff:\t000001ffffffffff\n": "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN",
		"CapEff:\t000000c000001000\n":           "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN", // exactly these
		"CapEff:\t0000000000201000\n":           "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN", // CAP_SYS_ADMIN, CAP_NET_ADMIN
		"CapEff:\t0000000000200000\n":           "without CAP_NET_ADMIN",
		"CapEff:\t0000000000001000\n":           "without CAP_BPF, CAP_PERFMON",
		"CapEff:\tx\n":                          "without CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN",
		"":                                      "without CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN",
	} {
		if got := capabilities(effectiveCapabilities(status)); got.Detail != want || got.Met != (want[0] == 'C') {
			t.Errorf("%q: %+v", status, got)
		}
	}
	if n := bpfFileSystem(t.TempDir(), 0); n.Met || n.Fix == "" {
		t.Errorf("%+v", n)
	}
	if text := missing([]Need{{Name: "a", Met: true}, {Name: "b", Fix: "do"}}); text != "; missing: b (do)" {
		t.Error(text)
	}
}
