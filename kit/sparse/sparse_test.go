//go:build linux

package sparse_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/mainstay-infra/mainstay/kit/sparse"
)

const mib = 1 << 20

// disk makes a file of 64 MiB with data at three places, of which one is longer than a piece.
func disk(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	for _, part := range []struct{ at, length int64 }{{0, 4096}, {16 * mib, 9 * mib}, {63 * mib, mib}} {
		if _, err := f.WriteAt(bytes.Repeat([]byte{byte(part.at/mib) + 1}, int(part.length)), part.at); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func TestACopyHasTheContentAndTheHoles(t *testing.T) {
	t.Parallel()
	from := disk(t)
	to, err := os.Create(filepath.Join(t.TempDir(), "copy"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = to.Close() }()
	var told int64
	shared, err := sparse.Copy(t.Context(), to, from, 64*mib, func(n int64) { told = n })
	if err != nil {
		t.Fatal(err)
	}
	was, _ := os.ReadFile(from.Name())
	is, _ := os.ReadFile(to.Name())
	if len(was) != 64*mib || !bytes.Equal(was, is) {
		t.Errorf("%d bytes became %d others", len(was), len(is))
	}
	taken, err := sparse.Allocated(to)
	if err != nil || taken < 10*mib || taken > 12*mib {
		t.Errorf("the copy takes %d bytes, %v", taken, err)
	}
	if !shared && told < 10*mib {
		t.Errorf("the progress ended at %d bytes", told)
	}
}

func TestACopyOfAPartEndsThere(t *testing.T) {
	t.Parallel()
	to, err := os.Create(filepath.Join(t.TempDir(), "copy"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = to.Close() }()
	if _, err := sparse.Copy(t.Context(), to, disk(t), 17*mib, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	is, _ := os.ReadFile(to.Name())
	if len(is) != 17*mib || is[17*mib-1] != 17 {
		t.Errorf("%d bytes, of which the last is %d", len(is), is[len(is)-1])
	}
}

func TestPiecesAreInOrderAndBounded(t *testing.T) {
	t.Parallel()
	var next, total int64
	if err := sparse.Each(t.Context(), disk(t), 64*mib, func(offset int64, piece []byte) error {
		if offset < next || len(piece) == 0 || len(piece) > sparse.PieceSize {
			t.Errorf("a piece of %d bytes at %d", len(piece), offset)
		}
		next = offset + int64(len(piece))
		total += int64(len(piece))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if next != 64*mib || total < 10*mib || total > 11*mib {
		t.Errorf("%d bytes up to %d", total, next)
	}
}

func TestAFileThatIsCutOffIsNotReadAsIfItWereWhole(t *testing.T) {
	t.Parallel()
	f := disk(t)
	err := sparse.Each(t.Context(), f, 64*mib, func(offset int64, _ []byte) error {
		if offset == 16*mib {
			return f.Truncate(17 * mib)
		}
		return nil
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func TestACopyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("cancelled by a test")
	err := sparse.Each(ctx, disk(t), 64*mib, func(int64, []byte) error {
		cancel(why)
		return nil
	})
	if !errors.Is(err, why) {
		t.Error(err)
	}
}
