package record

import "testing"

func TestAVMIsWhereItWasSeenLast(t *testing.T) {
	t.Parallel()
	r := VM{State: Stopped, Node: "host-1", DriverID: "d", DriverGen: 4}
	if !r.Observe(Seen{Node: "host-2", DriverID: "d", Generation: 6, State: Stopped}) || r.Node != "host-2" {
		t.Errorf("a VM that moved to host-2 is at %s", r.Node)
	}
	if r.Observe(Seen{DriverID: "d", Generation: 6, State: Stopped}) || r.Node != "host-2" {
		t.Errorf("a VM that was seen without its host is at %q", r.Node)
	}
}
