package repository

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// maxDecompressed bounds what one object other than a pack may decompress to, in bytes.
const maxDecompressed = 64 << 20

// putMeta stores a value as JSON, compressed and sealed, bound to its name.
func putMeta(ctx context.Context, r *Repository, s *sealer, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if len(text) > maxDecompressed {
		return fault.New(fault.TooLarge, "%s would have %d bytes, more than %d", name, len(text), maxDecompressed)
	}
	return r.store.Put(ctx, name, s.seal(nil, compressor().EncodeAll(text, nil), []byte(name)))
}

// getMeta is the inverse of putMeta. What fails a check is a fault with the code backup_damaged.
func getMeta(ctx context.Context, r *Repository, s *sealer, name string, value any) error {
	sealed, err := r.store.Get(ctx, name, maxDecompressed)
	if err != nil {
		return err
	}
	return openMeta(s, name, sealed, value)
}

func openMeta(s *sealer, name string, sealed []byte, value any) error {
	packed, err := s.open(nil, sealed, []byte(name))
	if err != nil {
		return err
	}
	text, err := decompress(packed, maxDecompressed)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, value); err != nil {
		return damaged("it does not decode")
	}
	return nil
}

// decompress returns at most limit bytes.
func decompress(packed []byte, limit int) ([]byte, error) {
	// The result is grown as far as it fills: the length that the header claims is not believed.
	for capacity := min(limit, max(4<<10, 4*len(packed))); ; capacity = min(limit, 4*capacity) {
		text, err := decompressor().DecodeAll(packed, make([]byte, 0, capacity))
		if err == nil {
			return text, nil
		}
		if capacity == limit {
			return nil, damaged("it does not decompress to at most %d bytes", limit)
		}
	}
}

// names returns the names of objects below a prefix, without the prefix.
func (r *Repository) names(ctx context.Context, prefix string) (names []string, err error) {
	for info, err := range r.store.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimPrefix(info.Name, prefix))
	}
	return names, nil
}

func isDamaged(err error) bool {
	f := new(fault.Error)
	return errors.As(err, &f) && (f.Code == "backup_damaged" || f.Kind == fault.TooLarge || f.Kind == fault.Invalid)
}

func notExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func exists(err error) bool { return errors.Is(err, fs.ErrExist) }
