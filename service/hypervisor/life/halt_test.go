package life

import "testing"

func TestAGuestGoesOnWithATwentiethOfTheFileSystemOrAGiB(t *testing.T) {
	t.Parallel()
	for _, it := range []struct {
		free, size uint64
		want       bool
	}{
		{5, 100, true}, {4, 100, false}, {0, 100, false}, {0, 0, true},
		{1 << 30, 1 << 40, true}, {1<<30 - 1, 1 << 40, false}, {1 << 40, 1 << 40, true},
	} {
		if got := enoughRoom(it.free, it.size); got != it.want {
			t.Errorf("%d of %d bytes: %v", it.free, it.size, got)
		}
	}
}
