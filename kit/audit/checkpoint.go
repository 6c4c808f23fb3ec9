package audit

import (
	"encoding/json"
	"slices"
	"time"
)

// Checkpoint is a signed place in the chain that is stored outside of the database.
type Checkpoint struct {
	Time      time.Time `json:"time"`
	Genesis   string    `json:"genesis"` // the id of the log
	Segment   int64     `json:"segment"`
	Seq       int64     `json:"seq"`
	Hash      string    `json:"hash"`
	Signature string    `json:"signature"`
}

func (c Checkpoint) mark() mark { return mark{c.Genesis, c.Segment, c.Seq, c.Hash} }

func (c Checkpoint) signed() []byte {
	return append(
		[]byte("mainstay audit checkpoint "), encode(c.Time.UnixMicro(), c.Genesis, c.Segment, c.Seq, c.Hash)...)
}

func (c Checkpoint) line() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // texts, numbers, and a time that came from a clock
	}
	return append(b, '\n')
}

// checkpoint returns a signed checkpoint of the end of a chain.
func (s signer) checkpoint(c chain, now time.Time) Checkpoint {
	p := Checkpoint{
		Time:    now.UTC().Truncate(time.Microsecond),
		Genesis: c.segment.Log,
		Segment: c.head.Segment,
		Seq:     c.head.Seq,
		Hash:    c.head.Hash,
	}
	p.Signature = s.sign(p.signed())
	return p
}

// Retention of a file's checkpoints: the newest ones, one per hour, one per day, and the first.
const (
	keepNewest = 100
	keepHourly = 48 * time.Hour
	keepDaily  = 400 * 24 * time.Hour
	// maxLines is the number of lines at which a file is thinned, to about half.
	maxLines = 1200
)

// thin returns the checkpoints to keep, in their order.
func thin(all []Checkpoint, now time.Time) []Checkpoint {
	if len(all) <= keepNewest+1 {
		return all
	}
	old := all[1 : len(all)-keepNewest]
	kept := []Checkpoint{all[0]}
	last := all[0].Time
	for _, c := range old {
		age, step := now.Sub(c.Time), 24*time.Hour
		if age < keepHourly {
			step = time.Hour
		}
		if age < keepDaily && c.Time.Sub(last) >= step {
			kept, last = append(kept, c), c.Time
		}
	}
	return slices.Concat(kept, all[len(all)-keepNewest:])
}
