package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"

	hypervisorapi "github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/kit/sparse"
	"github.com/mainstay-infra/mainstay/service/hypervisor/fleet"
)

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
		if !slices.Contains(needed, s.name) {
			continue
		}
		bytes, err := sparse.Allocated(s.file)
		if err != nil {
			return sums, err
		}
		total += bytes
	}
	sums.Files = sums.Files[:0:0]
	for _, s := range all {
		if !slices.Contains(needed, s.name) {
			continue
		}
		of := newSum()
		err := sparse.Each(ctx, s.file, s.size, func(offset int64, piece []byte) error {
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
