package image

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Limits are the limits for importing an image.
type Limits struct {
	VirtualSize int64         // of the disk, in bytes
	Written     int64         // bytes of the result's file
	CPU         time.Duration // of qemu-img; at least a second
	Memory      int64         // of qemu-img, in bytes of address space
}

// DefaultMemory is enough for qemu-img with usual images.
const DefaultMemory = 1 << 30

// Convert converts the image at path to a new qcow2 image at result, which must not exist. It
// reports progress from 0 to 1 to progress, which may be nil. On errors, there is no result.
//
// qemu-img runs with the limits and reads the image only as the format in info. If this process is
// root's, qemu-img also runs without a network.
func Convert(
	ctx context.Context, path string, info Info, result string, limits Limits, progress func(float64),
) (err error) {
	if info.VirtualSize > limits.VirtualSize {
		return fault.New(
			fault.Invalid, "the image has %d bytes for its guest; %d are allowed", info.VirtualSize, limits.VirtualSize,
		).WithCode("image_refused")
	}
	if _, err := os.Lstat(result); err == nil {
		return fault.New(fault.Conflict, "%s exists", result)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removed(result))
		}
	}()
	return convert(ctx, append(limits.args(), source(info.Format, path), result), progress)
}

// args are those of a conversion to qcow2 within the limits, but for its source and result.
func (l Limits) args() []string {
	return []string{"prlimit",
		"--fsize=" + strconv.FormatInt(l.Written, 10), "--as=" + strconv.FormatInt(l.Memory, 10),
		"--cpu=" + strconv.Itoa(int(l.CPU/time.Second)), "--core=0", "--nofile=" + strconv.Itoa(files),
		"qemu-img", "convert", "-p", "-t", "none", "-O", string(Qcow2)}
}

const (
	files         = 1024     // that a conversion may have open: a chain has one a layer
	layerMemory   = 64 << 20 // that a further layer of a chain may take
	mostLayers    = files - 64
	metadata      = 64 << 20      // beside the bytes of a disk
	conversionCPU = 4 * time.Hour // of what takes some minutes
)

// LimitsOf returns limits for a disk of known size.
func LimitsOf(virtualSize int64) Limits {
	return Limits{
		VirtualSize: virtualSize,
		Written:     virtualSize + virtualSize/8 + metadata,
		CPU:         conversionCPU,
		Memory:      DefaultMemory,
	}
}

// Flatten combines a chain of qcow2 images, each with the next as its backing file, into one at
// result, which must not exist. It reports progress to progress, which may be nil. References in
// the images' headers are ignored: the images have been inspected, and chain lists the backing
// files.
func Flatten(ctx context.Context, chain []string, result string, limits Limits, progress func(float64)) (err error) {
	if len(chain) > mostLayers {
		return fault.New(fault.Conflict, "%d images stand on each other; %d can be read", len(chain), mostLayers)
	}
	if _, err := os.Lstat(result); err == nil {
		return fault.New(fault.Conflict, "%s exists", result)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removed(result))
		}
	}()
	limits.Memory += int64(len(chain)) * layerMemory
	return convert(ctx, append(limits.args(), source(Qcow2, chain...), result), progress)
}

// convert runs qemu-img and parses its progress.
func convert(ctx context.Context, args []string, progress func(float64)) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // paths are values, not options
	cmd.Dir = "/"
	// Each thread's own arena would take 64 MiB of the address space that limits.args allows, and a busy
	// machine has many threads at once: qemu-img then aborts.
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "MALLOC_ARENA_MAX=1"}
	confine(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var said bytes.Buffer
	cmd.Stderr = &head{&said}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); errors.Is(err, exec.ErrNotFound) {
		return fault.Wrap(
			fault.Unavailable, err, "images are converted by qemu-img, which is missing: apt-get install qemu-utils",
		)
	} else if err != nil {
		return err
	}
	follow(out, progress)
	return failure(ctx, cmd.Wait(), said.String())
}

// source describes an image and its backing files, so that qemu-img neither guesses a format nor
// opens files that a header refers to.
func source(format Format, chain ...string) string {
	var below any // none
	for _, path := range slices.Backward(chain) {
		options := map[string]any{"driver": string(format), "file": map[string]any{"driver": "file", "filename": path}}
		if format == Qcow2 {
			options["backing"] = below
		}
		below = options
	}
	text, err := json.Marshal(below)
	if err != nil {
		panic(err) // texts only
	}
	return "json:" + string(text)
}

// follow reads the lines of -p, "    (12.34/100%)", which end with a carriage return.
func follow(out io.Reader, progress func(float64)) {
	lines := bufio.NewScanner(out)
	lines.Split(func(data []byte, end bool) (int, []byte, error) {
		if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
			return i + 1, data[:i], nil
		}
		if end && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	for lines.Scan() {
		number, _, ok := strings.Cut(strings.TrimLeft(lines.Text(), " ("), "/100%")
		if percent, err := strconv.ParseFloat(number, 64); ok && err == nil && progress != nil {
			progress(percent / 100)
		}
	}
	_, _ = io.Copy(io.Discard, out) // a line that was too long: the end is what counts
}

// failure returns why qemu-img failed.
func failure(ctx context.Context, err error, said string) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.As(err, &exit):
		return fmt.Errorf("run qemu-img: %w", err)
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		switch status.Signal() {
		case syscall.SIGXFSZ:
			return fault.New(fault.Invalid, "the image takes more room than is allowed").WithCode("image_refused")
		case syscall.SIGXCPU:
			return fault.New(fault.Invalid, "the image takes more time than is allowed").WithCode("image_refused")
		}
		return fmt.Errorf("qemu-img was ended by %s", status.Signal())
	}
	if strings.Contains(said, "No space left on device") {
		return fault.New(fault.StorageFailed, "the host's storage is full")
	}
	return fault.New(
		fault.Invalid, "qemu-img does not take the image: %s", strings.TrimSpace(said),
	).WithCode("image_refused")
}

func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// head keeps the beginning of what is written.
type head struct{ kept *bytes.Buffer }

const mostSaid = 2048

func (h *head) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), max(0, mostSaid-h.kept.Len()))])
	return len(p), nil
}
