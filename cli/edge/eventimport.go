package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/edge"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

const (
	batchEvents = 1000
	// batchBytes leaves room below the API's 8 MiB for the frame around the events and the ids that
	// are added to them.
	batchBytes = 7 << 20
)

func (s *session) eventImport() *cobra.Command {
	var site string
	cmd := s.Command(verb.Verb{
		Use:   "import FILE",
		Short: "Send events from a file of JSON lines",
		Long: `Send events from a file of JSON lines (- is standard input), in batches of up to 1,000.

Every line is an event: {"site_id", "topic", "payload"}, and optionally "event_id", "headers" and "event_time". A line
without event_id gets one that is made from its content, so equal lines without event_id are one event. After an
interruption, run the same command again: events that have arrived are recognised by their ids.`,
		Example: "  mainstay edge event import events.jsonl\n  zcat events.jsonl.gz | mainstay edge event import - --site plant-7",
	}, func(ctx context.Context, c *call) error { return importEvents(ctx, c, site) })
	cmd.Flags().StringVar(&site, "site", "", "site of the lines that name none")
	return cmd
}

// importer imports the events of one file.
type importer struct {
	call     *call
	site     string
	progress *output.Progress

	batch      []edgeapi.EventInput
	size       int // bytes in the batch
	first      int // line of the batch's first event
	line       int
	read       int64
	Events     int64 `json:"events"`
	Duplicates int64 `json:"duplicates"`
}

func importEvents(ctx context.Context, c *call, site string) error {
	in, total := c.Cmd.InOrStdin(), int64(0)
	if c.Args[0] != "-" {
		file, err := os.Open(c.Args[0])
		if err != nil {
			return err
		}
		// The file was only read, so errors of closing do not matter.
		defer func() { _ = file.Close() }()
		in = file
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			total = info.Size()
		}
	}
	i := &importer{call: c, site: site, progress: output.NewProgress(c.Cmd.ErrOrStderr(), total)}
	err := i.run(ctx, in)
	i.progress.Done()
	if err != nil {
		if exit.Hint(err) == "" && exit.Code(err) == exit.Failure {
			err = exit.Hinted(err, "run the same command again: events that have arrived are not stored twice")
		}
		return fmt.Errorf("after %d events: %w", i.Events, err)
	}
	return c.Out.Value(i)
}

func (i *importer) run(ctx context.Context, in io.Reader) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("line %d: %w", i.line+1, err)
		}
		end := err != nil
		i.line++
		i.read += int64(len(text))
		if text = bytes.TrimSpace(text); len(text) > 0 {
			if err := i.add(ctx, text); err != nil {
				return err
			}
		}
		if end {
			return i.flush(ctx)
		}
	}
}

// add appends a line to the batch and sends the batch when it is full.
func (i *importer) add(ctx context.Context, text []byte) error {
	var e edgeapi.EventInput
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("line %d is not an event: %w", i.line, err)
	}
	if e.SiteId == "" {
		e.SiteId = i.site
	}
	switch {
	case e.SiteId == "":
		return exit.Hinted(fmt.Errorf("line %d has no site_id", i.line), "--site names the site of such lines")
	case e.Topic == "":
		return fmt.Errorf("line %d has no topic", i.line)
	case e.Payload == nil:
		return fmt.Errorf("line %d has no payload", i.line)
	}
	if e.EventId == nil || *e.EventId == "" {
		e.EventId = new(lineID(e.SiteId, text))
	}
	if len(i.batch) == batchEvents || len(i.batch) > 0 && i.size+len(text) > batchBytes {
		if err := i.flush(ctx); err != nil {
			return err
		}
	}
	if len(i.batch) == 0 {
		i.first = i.line
	}
	i.batch = append(i.batch, e)
	i.size += len(text)
	return nil
}

// lineID returns the id for an event whose line has none. It is the same for the same line and
// site, in any file.
func lineID(site string, text []byte) string {
	h := sha256.New()
	// A hash never fails.
	_, _ = fmt.Fprintf(h, "%s\n%s", site, text)
	return "line-" + hex.EncodeToString(h.Sum(nil)[:16])
}

func (i *importer) flush(ctx context.Context) error {
	if len(i.batch) == 0 {
		return nil
	}
	receipts, err := decode[[]edgeapi.EventReceipt](
		i.call.Send(i.call.API.IngestEvents(ctx, edgeapi.EventBatch{Events: i.batch})),
	)
	if err != nil {
		return fmt.Errorf("lines %d to %d: %w", i.first, i.line, err)
	}
	for _, r := range receipts {
		if r.Duplicate {
			i.Duplicates++
		}
	}
	i.Events += int64(len(i.batch))
	i.batch, i.size = i.batch[:0], 0
	i.progress.Update(i.read, i.Events, "events")
	return nil
}
