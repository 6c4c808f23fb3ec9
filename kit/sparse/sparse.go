// Package sparse reads and copies files with holes, such as disk images, without reading or writing
// the holes.
//
// It imports nothing of the kit.
package sparse

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// PieceSize is the most bytes that Each reads at once.
const PieceSize = 4 << 20

// Each calls do with the parts of the first size bytes of a file that are not holes, in order. A
// piece is valid during the call. It fails with io.ErrUnexpectedEOF if the file is cut off meanwhile.
// It moves the file's offset.
func Each(ctx context.Context, f *os.File, size int64, do func(offset int64, piece []byte) error) error {
	buffer := make([]byte, min(PieceSize, max(size, 1)))
	for at := int64(0); at < size; {
		begin, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return holds(f, size) // a hole up to the end
		}
		if err != nil {
			return err
		}
		end, err := f.Seek(begin, unix.SEEK_HOLE)
		if errors.Is(err, unix.ENXIO) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		for end = min(end, size); begin < end; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			piece := buffer[:min(int64(len(buffer)), end-begin)]
			if _, err := f.ReadAt(piece, begin); err != nil {
				if errors.Is(err, io.EOF) {
					return io.ErrUnexpectedEOF
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

// holds fails if a file has fewer than size bytes.
func holds(f *os.File, size int64) error {
	stat, err := f.Stat()
	if err == nil && stat.Size() < size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Copy copies the first size bytes of a file to an empty one, which then has size bytes. Where the
// file system can share blocks between files (FICLONE), it does, and both files are the same at one
// moment; shared tells. Otherwise the parts that are not holes are copied one after the other, and
// what is written to the source meanwhile may be in the copy or not. progress gets the bytes that
// were copied so far.
func Copy(ctx context.Context, to, from *os.File, size int64, progress func(bytes int64)) (shared bool, err error) {
	if Share(to, from) {
		return true, to.Truncate(size)
	}
	var done int64
	if err := Each(ctx, from, size, func(offset int64, piece []byte) error {
		_, err := to.WriteAt(piece, offset)
		done += int64(len(piece))
		progress(done)
		return err
	}); err != nil {
		return false, err
	}
	return false, to.Truncate(size)
}

// Allocated returns the bytes that a file takes on its file system. Blocks that are shared with other
// files count, too.
func Allocated(f *os.File) (int64, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil { //nolint:gosec // descriptors are small
		return 0, err
	}
	const blockSize = 512 // whatever the file system's is
	return stat.Blocks * blockSize, nil
}
