package quota_test

import (
	"math"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/quota"
)

func TestWhoHasAndAsksMayHaveAtMostTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		has, asked, most int64
		allowed          bool
		left             int64
	}{
		{has: 0, asked: 0, most: 3, allowed: true, left: 3},
		{has: 1, asked: 2, most: 3, allowed: true, left: 2},
		{has: 1, asked: 3, most: 3, allowed: false, left: 2},
		{has: 3, asked: 0, most: 3, allowed: true, left: 0},
		{has: 3, asked: 1, most: 3, allowed: false, left: 0},
		{has: 5, asked: 1, most: 3, allowed: false, left: 0}, // the limit was lowered
		{has: 5, asked: 0, most: 3, allowed: false, left: 0},
		{has: math.MaxInt64, asked: math.MaxInt64, most: 3, allowed: false, left: 0},
		{has: 1, asked: math.MaxInt64, most: math.MaxInt64, allowed: false, left: math.MaxInt64 - 1},
		{has: math.MaxInt64, asked: 1, most: math.MaxInt64, allowed: false, left: 0},
		{has: math.MinInt64, asked: 3, most: 3, allowed: true, left: 3},
		{has: 2, asked: math.MinInt64, most: 3, allowed: true, left: 1},
		{has: 3, asked: -1, most: 2, allowed: false, left: 0},
	} {
		l := quota.Limit{Name: "max", Has: c.has, Most: c.most}
		if got := l.Allows(c.asked); got != c.allowed {
			t.Errorf("%+v: allowed %v", c, got)
		}
		if left, limited := l.Left(); left != c.left || !limited {
			t.Errorf("%+v: %d left, limited %v", c, left, limited)
		}
	}
}

func TestWithoutALimitEverythingIsAllowed(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{0, -1, math.MinInt64} {
		l := quota.Limit{Has: math.MaxInt64, Most: most}
		if _, limited := l.Left(); limited || !l.Allows(math.MaxInt64) {
			t.Errorf("%d is a limit", most)
		}
	}
}

func TestARefusalNamesTheFirstLimitThatIsExceeded(t *testing.T) {
	t.Parallel()
	vms := quota.Demand{Limit: quota.Limit{Name: "max_vms", Unit: "VMs", Has: 1, Most: 2}, Asked: 1}
	cpus := quota.Demand{Limit: quota.Limit{Name: "max_vcpus", Unit: "processors", Has: 3, Most: 4}, Asked: 2}
	memory := quota.Demand{Limit: quota.Limit{Name: "max_memory", Unit: "MiB", Has: 3, Most: 4}, Asked: 2}
	if d := quota.Exceeded(vms); d != nil {
		t.Errorf("%+v", d)
	}
	d := quota.Exceeded(vms, cpus, memory)
	if d == nil {
		t.Fatal("nothing is exceeded")
	}
	f := d.Refusal("the tenant red")
	const want = "the tenant red has 3 processors and asks for 2 more; it may have 4 in all; the limit is max_vcpus"
	if f.Kind != fault.Invalid || f.Limit != "max_vcpus" || f.Message != want {
		t.Errorf("%+v", f)
	}
}
