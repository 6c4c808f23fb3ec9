package accel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/mainstay-infra/mainstay/kit/durable"
)

// maxCache limits the size of the cache file, in bytes.
const maxCache = 64 << 10

// key identifies what a cached result is valid for.
type key struct {
	BootID string        `json:"bootID"`
	Kernel string        `json:"kernel"`
	QEMU   string        `json:"qemu"`
	Guest  string        `json:"guest"` // the SHA-256 of the probe
	Limit  time.Duration `json:"limit"`
}

func cacheKey(h host, version string, rom []byte, limit time.Duration) key {
	sum := sha256.Sum256(rom)
	return key{BootID: h.bootID, Kernel: h.release, QEMU: version, Guest: hex.EncodeToString(sum[:]), Limit: limit}
}

type cached struct {
	Key         key         `json:"key"`
	Accelerator Accelerator `json:"accelerator"`
	Reason      string      `json:"reason"`
}

// recall returns the result in a cache file, if it has one for this key.
func recall(path string, k key) (Result, bool) {
	if path == "" || k.BootID == "" {
		return Result{}, false
	}
	f, err := os.Open(path)
	if err != nil {
		return Result{}, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCache))
	var c cached
	if err != nil || json.Unmarshal(b, &c) != nil || c.Key != k || c.Accelerator != KVM && c.Accelerator != TCG {
		return Result{}, false
	}
	return Result{Accelerator: c.Accelerator, Reason: c.Reason, Cached: true}, true
}

// remember stores a result in the cache file and returns it. If storing fails, the error is only
// appended to the result's Reason.
func remember(path string, k key, r Result) Result {
	if path == "" || k.BootID == "" {
		return r
	}
	b, err := json.MarshalIndent(cached{Key: k, Accelerator: r.Accelerator, Reason: r.Reason}, "", "  ")
	if err == nil {
		err = durable.Replace(path, append(b, '\n'), 0o600)
	}
	if err != nil {
		r.Reason += " (this cannot be remembered: " + err.Error() + ")"
	}
	return r
}
