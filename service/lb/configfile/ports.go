package configfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/document"
)

// PortRange is the range of ports from First to Last, both included. The zero PortRange means none.
type PortRange struct{ First, Last uint16 }

func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// IsZero reports whether there is no range.
func (r PortRange) IsZero() bool { return r == PortRange{} }

func (r PortRange) overlaps(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }

func parsePortRange(text string) (PortRange, error) {
	first, last, ok := strings.Cut(text, "-")
	a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	switch {
	case !ok || errA != nil || errB != nil || a == 0:
		return PortRange{}, fmt.Errorf(
			"must be FIRST-LAST, of ports from 1 to 65535, as in 8000-8100, not %s", document.Quoted(text),
		)
	case a == b:
		return PortRange{}, fmt.Errorf("has one port; write port: %d", a)
	case a > b:
		return PortRange{}, fmt.Errorf("must not go down, as %d-%d does", a, b)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}
