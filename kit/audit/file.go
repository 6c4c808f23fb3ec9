package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/durable"
	"github.com/mainstay-infra/mainstay/kit/fault"
)

// checkpoints is the file of checkpoints and its content.
type checkpoints struct {
	path  string
	log   *slog.Logger
	fresh bool // there was no file, or it was empty

	mu       sync.Mutex
	ours     []Checkpoint // thinned, oldest first
	last     Checkpoint   // of the furthest place
	others   []string     // digests of the first lines that are not ours
	broken   int          // lines that are not JSON, from interrupted writes
	lines    int          // in the file
	thinFrom int          // number of lines at which the file is thinned
	torn     bool         // the file does not end with a newline
}

// Limits on reading the file.
const (
	maxLine   = 4 << 10
	maxOthers = 10
)

// openCheckpoints reads the file. If it cannot be read, that is a fault: without it, a restored
// database would go unnoticed.
func openCheckpoints(path string, from witnesses, log *slog.Logger) (*checkpoints, error) {
	c := &checkpoints{path: path, log: log, thinFrom: maxLines}
	refused := func(err error) error {
		f := fault.Wrap(
			fault.Invalid, err,
			"audit-checkpoints: cannot read or make the file %s; make its folder, and let this user write there",
			path,
		)
		f.Field = "audit-checkpoints"
		return f
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, refused(err)
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		c.fresh = true
		return c, nil
	}
	if err != nil {
		return nil, refused(err)
	}
	defer f.Close() // read only
	if err := c.read(f, from); err != nil {
		return nil, refused(err)
	}
	c.fresh = c.lines == 0
	return c, nil
}

func (c *checkpoints) read(r io.Reader, from witnesses) error {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) > 0 {
			c.lines++
			c.torn = errors.Is(err, io.EOF)
			c.take(bytes.TrimSpace(line), long, from)
		}
		if err != nil {
			return nil
		}
		if len(c.ours) > 2*maxLines {
			c.ours = thin(c.ours, time.Now())
		}
	}
}

func (c *checkpoints) take(line []byte, long bool, from witnesses) {
	var p Checkpoint
	switch err := json.Unmarshal(line, &p); {
	case err != nil && !long:
		c.broken++
	case err == nil && from.accept(p):
		c.ours = append(c.ours, p)
		if p.Genesis != c.last.Genesis || p.mark().after(c.last.mark()) {
			c.last = p
		}
	case len(c.others) < maxOthers:
		c.others = append(c.others, digest(line))
	}
}

// newest returns the checkpoint of the furthest place, or the zero value if there is none. This is
// the last one that was written: whoever stole a retired key can append one of an earlier place.
func (c *checkpoints) newest() Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// snapshot returns a copy of the file's content.
func (c *checkpoints) snapshot() (ours []Checkpoint, others []string, broken int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ours), slices.Clone(c.others), c.broken
}

// add appends a checkpoint. If it returns nil, the checkpoint survives power loss.
func (c *checkpoints) add(p Checkpoint) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines >= c.thinFrom {
		c.thin(p.Time)
	}
	info, err := os.Stat(c.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if c.lines > 0 {
			c.log.Warn("the file of audit checkpoints was removed; it is written again", "path", c.path)
		}
		all := append(slices.Clone(c.ours), p)
		if err := durable.Create(c.path, join(all), 0o600); err != nil {
			return err
		}
		c.lines, c.torn = len(all), false
	case err != nil:
		return err
	default:
		line := p.line()
		if c.torn {
			line = append([]byte{'\n'}, line...)
		}
		if err := appendDurably(c.path, line); err != nil {
			// On a full disk, part of the line may have been written.
			c.torn = os.Truncate(c.path, info.Size()) != nil || c.torn
			return err
		}
		c.lines, c.torn = c.lines+1, false
	}
	c.ours = append(c.ours, p)
	c.last = p
	return nil
}

// thin rewrites the file without the checkpoints that need not be kept. Append-only storage refuses
// this; the file then grows, and its owner must rotate it.
func (c *checkpoints) thin(now time.Time) {
	c.ours = thin(c.ours, now)
	if err := durable.Replace(c.path, join(c.ours), 0o600); err != nil {
		c.log.Warn("the file of audit checkpoints cannot be thinned out, and grows", "path", c.path, "error", err)
		c.thinFrom = 2 * c.lines
		return
	}
	c.lines, c.torn, c.others, c.broken, c.thinFrom = len(c.ours), false, nil, 0, maxLines
}

func join(all []Checkpoint) []byte {
	var b bytes.Buffer
	for _, p := range all {
		b.Write(p.line())
	}
	return b.Bytes()
}

func appendDurably(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0) //nolint:gosec // the operator's path
	if err != nil {
		return fmt.Errorf("open checkpoints: %w", err)
	}
	_, err = f.Write(line)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
