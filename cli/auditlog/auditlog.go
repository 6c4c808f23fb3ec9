// Package auditlog has what the commands of audit logs share. All services with an audit log
// tell of it in the same form.
package auditlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mainstay-infra/mainstay/cli/output"
)

type verification struct {
	OK       bool   `json:"ok"`
	Entries  int64  `json:"entries"`
	Verified int64  `json:"verified"`
	Reason   string `json:"reason"`
	Genesis  string `json:"genesis"`
	HeadSeq  int64  `json:"head_seq"`
	HeadHash string `json:"head_hash"`
	Segments []struct {
		Number, First, Last, Verified int64
		BegunAt                       time.Time `json:"begun_at"`
	} `json:"segments"`
	Breaks []struct {
		Segment, Recorded int64
		Reason, Note      string
		FoundAt           time.Time  `json:"found_at"`
		AcknowledgedAt    *time.Time `json:"acknowledged_at"`
		AcknowledgedBy    string     `json:"acknowledged_by"`
	} `json:"breaks"`
	Checkpoints struct {
		Count     int        `json:"count"`
		Since     *time.Time `json:"since"`
		NewestAt  *time.Time `json:"newest_at"`
		NewestSeq int64      `json:"newest_seq"`
		Cut       int        `json:"cut"`
	} `json:"checkpoints"`
}

// Print prints a verification as the API returned it. It returns an error if the log is not intact.
// acknowledge is the command that acknowledges breaks.
func Print(p *output.Printer, raw []byte, acknowledge string) error {
	var v verification
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if err := p.ObjectAs(raw, func() error { return p.Rows(rows(p, v)) }); err != nil {
		return err
	}
	if v.OK {
		return nil
	}
	last := int64(0)
	for _, b := range v.Breaks {
		last = max(last, b.Recorded)
	}
	why := errors.New("the audit log is not whole: " + output.Escape(v.Reason))
	if last == 0 {
		return why
	}
	return fmt.Errorf("%w. If you know why, say so: %s %d --note TEXT", why, acknowledge, last)
}

func rows(p *output.Printer, v verification) [][]any {
	whole := "yes"
	switch {
	case !v.OK:
		whole = "no"
	case len(v.Breaks) > 0:
		whole = "yes, but for breaks that are acknowledged"
	}
	out := [][]any{
		{"Whole", whole},
		{"Entries", fmt.Sprintf("%d of %d verify", v.Verified, v.Entries)},
		{"Genesis", v.Genesis},
		{"Head seq", v.HeadSeq},
		{"Head hash", v.HeadHash},
	}
	for _, s := range v.Segments {
		entries := "no entries yet"
		if s.Last >= s.First {
			entries = fmt.Sprintf("entries %d to %d, the first %d verify", s.First, s.Last, s.Verified)
		}
		out = append(
			out, []any{fmt.Sprintf("Segment %d", s.Number), fmt.Sprintf("%s; begun %s", entries, p.Time(s.BegunAt))},
		)
	}
	for _, b := range v.Breaks {
		state := "not acknowledged"
		if b.AcknowledgedAt != nil {
			state = fmt.Sprintf("acknowledged by %s, %s: %s", b.AcknowledgedBy, p.Time(*b.AcknowledgedAt), b.Note)
		}
		out = append(
			out,
			[]any{"Break", fmt.Sprintf("%s (found %s, entry %d; %s)", b.Reason, p.Time(b.FoundAt), b.Recorded, state)},
		)
	}
	return append(out, []any{"Checkpoints", checkpoints(p, v)})
}

func checkpoints(p *output.Printer, v verification) string {
	c := v.Checkpoints
	if c.Count == 0 || c.Since == nil || c.NewestAt == nil {
		return "none"
	}
	text := fmt.Sprintf(
		"%d, none before %s; the newest is of entry %d, %s", c.Count, p.Time(*c.Since), c.NewestSeq,
		p.Time(*c.NewestAt),
	)
	if c.Cut > 0 {
		text += fmt.Sprintf("; lines that were not written whole: %d", c.Cut)
	}
	return text
}
