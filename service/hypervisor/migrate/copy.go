package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

// pieceSize is the size of the pieces in which files are written, in bytes.
const pieceSize = 4 << 20

// sum hashes the pieces of a file, each after its offset and its length.
type sum struct{ hash.Hash }

func newSum() sum { return sum{sha256.New()} }

func (s sum) add(offset int64, piece []byte) {
	var head [16]byte
	binary.BigEndian.PutUint64(head[:8], uint64(offset))     //nolint:gosec // not negative
	binary.BigEndian.PutUint64(head[8:], uint64(len(piece))) //nolint:gosec // not negative
	_, _ = s.Write(head[:])                                  // it never fails
	_, _ = s.Write(piece)
}

func (s sum) String() string { return hex.EncodeToString(s.Sum(nil)) }

// copyTo writes the needed files to another host, and returns the sums of what was written.
func copyTo(
	ctx context.Context, peer *fleet.Peer, id string, all sources, needed []string, progress func(float64),
) (sums hypervisorapi.MigrationSums, err error) {
	var done, total int64
	for _, s := range all {
		if slices.Contains(needed, s.name) {
			total += allocated(s.file)
		}
	}
	sums.Files = sums.Files[:0:0]
	buffer := make([]byte, pieceSize)
	for _, s := range all {
		if !slices.Contains(needed, s.name) {
			continue
		}
		of := newSum()
		err := eachPiece(s.file, s.size, buffer, func(offset int64, piece []byte) error {
			of.add(offset, piece)
			done += int64(len(piece))
			progress(min(1, float64(done)/float64(max(total, done))) * copied)
			return peer.Write(ctx, id, s.name, offset, piece)
		})
		if err != nil {
			return sums, err
		}
		sums.Files = append(sums.Files, struct {
			Name   hypervisorapi.MigrationFileName `json:"name"`
			Sha256 string                          `json:"sha256"`
		}{s.name, of.String()})
	}
	return sums, nil
}

// copied is the progress of a migration when all files are written.
const copied = 0.95

// allocated returns the bytes that a file takes, which are at most a little less than what is read of it.
func allocated(f *os.File) int64 {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil { //nolint:gosec // a descriptor is small
		return 0
	}
	return stat.Blocks * 512
}

// eachPiece calls do with the parts of a file that are not holes, in order.
func eachPiece(f *os.File, size int64, buffer []byte, do func(offset int64, piece []byte) error) error {
	for at := int64(0); at < size; {
		begin, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole up to the end
		}
		if err != nil {
			return err
		}
		end, err := f.Seek(begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		for end = min(end, size); begin < end; {
			piece := buffer[:min(int64(len(buffer)), end-begin)]
			if _, err := f.ReadAt(piece, begin); err != nil {
				if errors.Is(err, io.EOF) {
					return io.ErrUnexpectedEOF // it was cut off meanwhile
				}
				return err
			}
			if err := do(begin, piece); err != nil {
				return err
			}
			begin += int64(len(piece))
		}
		at = max(end, at+1)
	}
	return nil
}
