package reserve_test

import (
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/reserve"
)

const mib = 1 << 20

func config(t *testing.T) reserve.Config {
	t.Helper()
	return reserve.Config{Path: filepath.Join(t.TempDir(), "reserve"), Size: 4 * mib, Step: mib}
}

// taken returns how much of the disk a file takes.
func taken(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

func TestAReserveTakesUpItsSpaceAndGivesItBackInSteps(t *testing.T) {
	t.Parallel()
	c := config(t)
	f := reserve.Open(c)
	if f.Full() || f.Give() || f.Missing() != c.Size {
		t.Fatal("a file that does not exist has space to give")
	}
	if !f.Fill() || !f.Full() || taken(t, c.Path) < c.Size {
		t.Fatalf("it takes %d bytes, not %d", taken(t, c.Path), c.Size)
	}
	for left := c.Size - c.Step; left >= 0; left -= c.Step {
		if !f.Give() || taken(t, c.Path) > left || f.Missing() != c.Size-left || f.Full() {
			t.Fatalf("%d bytes of %d should be left", taken(t, c.Path), left)
		}
	}
	if f.Give() {
		t.Error("an empty file has space to give")
	}
	if !f.Fill() || taken(t, c.Path) < c.Size {
		t.Error("it is not filled again")
	}
}

func TestTheNextProcessContinuesWithAReserve(t *testing.T) {
	t.Parallel()
	c := config(t)
	f := reserve.Open(c)
	if !f.Fill() || !f.Give() {
		t.Fatal("it cannot be filled")
	}
	if again := reserve.Open(c); again.Missing() != c.Step || !again.Fill() || !again.Full() {
		t.Errorf("it lacks %d bytes", again.Missing())
	}
}

func TestAReserveIsNotFilledWithoutRoom(t *testing.T) {
	t.Parallel()
	c := config(t)
	c.Room = math.MaxInt64 - c.Size
	if f := reserve.Open(c); f.Fill() || f.Full() || f.Due() {
		t.Error("it was filled, or is tried again at once")
	}
	if _, err := os.Lstat(c.Path); !os.IsNotExist(err) {
		t.Errorf("a file was made: %v", err)
	}
}

func TestAReserveDoesNotWriteThroughALink(t *testing.T) {
	t.Parallel()
	c := config(t)
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(precious, c.Path); err != nil {
		t.Fatal(err)
	}
	if f := reserve.Open(c); f.Fill() || f.Give() {
		t.Error("a link was taken as the reserve")
	}
	if got, err := os.ReadFile(precious); err != nil || string(got) != "precious" {
		t.Errorf("%q, %v", got, err)
	}
}
