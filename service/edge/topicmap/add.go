package topicmap

import (
	"cmp"
	"context"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mainstay-infra/mainstay/kit/db"
)

const (
	// Block is the number of events in a block. The migration 0005 has the same number.
	Block = 8192
	// Sparse is the largest number of events with one topic in a block that are listed.
	Sparse = 16
	// MaxTopics limits the rows of a block, for senders that make a topic for each event.
	MaxTopics = 2048
)

// Occurrence is an event whose topic the map learns.
type Occurrence struct {
	Seq   int64  `db:"seq"`
	OrgID string `db:"org_id"`
	Topic string `db:"topic"`
}

// place is a topic of an org.
type place struct{ org, topic string }

// row is a row of the map.
type row struct {
	Block int64  `db:"block"`
	OrgID string `db:"org_id"`
	Topic string `db:"topic"`
	N     int64  `db:"n"`
	Seqs  string `db:"seqs"`
}

func (r row) dense() bool { return r.N > Sparse || r.Topic == "" }

// Map adds events to the map. It is safe for concurrent use.
type Map struct {
	mu    sync.Mutex
	block int64           // the block that known is about; -1: none
	known map[place]int64 // the committed rows of the block, with at most their n
}

// New returns a Map.
func New() *Map { return &Map{block: -1} }

// Add adds events, in the order of their numbers, in the transaction that stores them. The numbers
// must be handed out in commit order.
func (m *Map) Add(ctx context.Context, tx *db.Tx, events []Occurrence) error {
	for len(events) > 0 {
		block := events[0].Seq / Block
		n := 1
		for n < len(events) && events[n].Seq/Block == block {
			n++
		}
		if err := m.addBlock(ctx, tx, block, events[:n]); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

func (m *Map) addBlock(ctx context.Context, tx *db.Tx, block int64, events []Occurrence) error {
	if err := m.load(ctx, tx, block); err != nil {
		return err
	}
	added := m.collect(block, events)
	if len(added) == 0 {
		return nil
	}
	tx.OnCommit(func() { m.learn(block, added) })
	return write(ctx, tx, added)
}

// load reads the rows of a block unless they are known.
func (m *Map) load(ctx context.Context, tx *db.Tx, block int64) error {
	m.mu.Lock()
	known := m.block == block
	m.mu.Unlock()
	if known {
		return nil
	}
	var rows []row
	if err := tx.Select(ctx, &rows, "SELECT * FROM event_topics WHERE block = ?", block); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.block, m.known = block, make(map[place]int64, len(rows))
	for _, r := range rows {
		m.known[place{r.OrgID, r.Topic}] = r.N
	}
	return nil
}

// collect returns what must be written for events of one block.
func (m *Map) collect(block int64, events []Occurrence) map[place]*row {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.block != block { // another transaction was faster; the database knows what is there
		return collect(block, events, nil)
	}
	return collect(block, events, m.known)
}

// collect returns the rows that events of one block add to the known ones.
func collect(block int64, events []Occurrence, known map[place]int64) map[place]*row {
	var added map[place]*row
	for _, e := range events {
		at := place{e.OrgID, e.Topic}
		n, exists := known[at]
		if n > Sparse {
			continue
		}
		r := added[at]
		if r == nil && !exists && len(known)+len(added) >= MaxTopics {
			at.topic = ""
			if known[at] > Sparse {
				continue
			}
			r = added[at]
		}
		if r == nil {
			r = &row{Block: block, OrgID: at.org, Topic: at.topic}
			if at.topic == "" {
				r.N = Sparse // with this event, too many to list
			}
			if added == nil {
				added = map[place]*row{}
			}
			added[at] = r
		}
		if r.N++; r.N > Sparse {
			r.Seqs = ""
			continue
		}
		if r.Seqs != "" {
			r.Seqs += ","
		}
		r.Seqs += strconv.FormatInt(e.Seq, 10)
	}
	return added
}

// learn remembers rows that were committed.
func (m *Map) learn(block int64, added map[place]*row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.block != block {
		return
	}
	for at, r := range added {
		m.known[at] += r.N
	}
}

const (
	maxInsert     = 64 // rows in a statement
	insertColumns = 5
)

// write adds rows to the map.
func write(ctx context.Context, tx *db.Tx, added map[place]*row) error {
	rows := slices.SortedFunc(maps.Values(added), func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.OrgID, b.OrgID), cmp.Compare(a.Topic, b.Topic))
	})
	for len(rows) > 0 {
		// Powers of two keep the number of distinct statements small, so they stay prepared.
		n := min(maxInsert, 1<<(bits.Len(uint(len(rows)))-1))
		args := make([]any, 0, n*insertColumns)
		for _, r := range rows[:n] {
			args = append(args, r.Block, r.OrgID, r.Topic, r.N, r.Seqs)
		}
		if _, err := tx.Exec(ctx, insertSQL[n], args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// insertSQL holds the INSERT statements by number of rows.
var insertSQL = func() map[int]string {
	const values = "(?, ?, ?, ?, ?)"
	texts := map[int]string{}
	for n := 1; n <= maxInsert; n *= 2 {
		texts[n] = "INSERT INTO event_topics (block, org_id, topic, n, seqs) VALUES " + values +
			strings.Repeat(", "+values, n-1) +
			" ON CONFLICT (block, org_id, topic) DO UPDATE SET n = event_topics.n + excluded.n, seqs = " +
			"CASE WHEN event_topics.n + excluded.n > " + strconv.Itoa(Sparse) +
			" THEN '' ELSE event_topics.seqs || ',' || excluded.seqs END"
	}
	return texts
}()
