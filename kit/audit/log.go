package audit

import (
	"context"
	"crypto/ed25519"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/db"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migrations returns the tables of this package, for db.DB.Migrate.
func Migrations() fs.FS { return db.EmbeddedMigrations(migrationFiles) }

// Config holds the dependencies and settings of a Log.
type Config struct {
	DB   *db.DB
	Seed []byte // seed of the signing key, ed25519.SeedSize bytes
	// Accepted are the seeds of other keys that may have signed the log. It continues with its key
	// until Rotate is called.
	Accepted [][]byte
	Now      func() time.Time
	Log      *slog.Logger
	Registry prometheus.Registerer // nil: no metrics
	// Checkpoints is the path of the checkpoint file; its directory is created. Empty means no
	// checkpoints.
	Checkpoints string
	// Send is an additional endpoint that checkpoints are sent to.
	Send Endpoint
	// Denied limits the entries of denied attempts. The zero value means DefaultDenied.
	Denied DeniedLimits
}

// Log appends to and reads one audit log. It is safe for concurrent use.
type Log struct {
	signers     []signer // the current key, and the accepted ones
	db          *db.DB
	now         func() time.Time
	log         *slog.Logger
	checkpoints *checkpoints // nil: none
	sender      *sender      // nil: none
	denied      *limiter
	metrics     *metrics
	changed     chan struct{} // the head moved
	verifyNow   chan struct{}

	inspecting sync.Mutex
	mu         sync.Mutex
	known      chain // the last committed head that this process wrote or verified
}

// Open checks the end of the log, and begins a new segment if it is not as this service left it. In
// a new database it creates a signed genesis. Checkpoints are written only while Run is running.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	l := &Log{
		db:        cfg.DB,
		now:       cfg.Now,
		log:       cfg.Log,
		denied:    newLimiter(cfg.Denied),
		metrics:   newMetrics(cfg.Registry),
		changed:   make(chan struct{}, 1),
		verifyNow: make(chan struct{}, 1),
	}
	for _, seed := range append([][]byte{cfg.Seed}, cfg.Accepted...) {
		l.signers = append(l.signers, signer{ed25519.NewKeyFromSeed(seed)})
	}
	var err error
	if l.sender, err = newSender(cfg.Send, cfg.Log); err != nil {
		return nil, err
	}
	if cfg.Checkpoints != "" {
		from, err := l.readWitnesses(ctx)
		if err != nil {
			return nil, err
		}
		if l.checkpoints, err = openCheckpoints(cfg.Checkpoints, from, l.log); err != nil {
			return nil, err
		}
	}
	if err := l.db.Update(ctx, l.open(ctx)); err != nil {
		return nil, err
	}
	if err := l.readBroken(ctx); err != nil {
		return nil, err
	}
	if l.checkpoints != nil && l.checkpoints.fresh && l.last().head.Seq > 0 {
		l.log.Warn("the audit checkpoint file is missing although the database is not new; starting a new one. "+
			"Whether an older copy of the database was restored before now cannot be detected", "path", cfg.Checkpoints)
	}
	wake(l.changed)
	return l, nil
}

// open returns the transaction that Open runs.
func (l *Log) open(ctx context.Context) func(tx *db.Tx) error {
	return func(tx *db.Tx) error {
		h, found, err := lockHead(ctx, tx)
		if err != nil {
			return err
		}
		var checkpoint mark
		if l.checkpoints != nil {
			checkpoint = l.checkpoints.newest().mark()
		}
		c := &chain{}
		tx.OnCommit(func() { l.learn(*c) })
		if found && h.Segment == 0 {
			begun, err := l.adopt(ctx, tx, h, checkpoint)
			if err != nil {
				return err
			}
			if begun != nil {
				h = begun.head
			}
		}
		checked, findings, err := l.check(ctx, tx, h, chain{}, checkpoint)
		if err != nil {
			return err
		}
		*c = checked
		if len(findings) > 0 {
			return l.beginAfterBreak(ctx, tx, c, h, findings, checkpoint)
		}
		return nil
	}
}

// adopt creates the genesis of a new database, or of a log that was created before segments existed
// if its head and last entry are ours. It returns nil for all others.
func (l *Log) adopt(ctx context.Context, tx *db.Tx, h head, checkpoint mark) (*chain, error) {
	segments, err := readSegments(ctx, tx)
	if err != nil || len(segments) > 0 {
		return nil, err
	}
	genesis, key := segment{Number: 1, First: 1}, l.signers[0]
	for _, s := range l.signers {
		if s.ours(h.signedBefore(), h.Signature) {
			key = s
		}
	}
	var last []Entry
	if err := tx.Select(ctx, &last, entriesQuery+" WHERE seq >= ? ORDER BY seq LIMIT 2", max(h.Seq-1, 0)); err != nil {
		return nil, fmt.Errorf("audit: read last entry: %w", err)
	}
	switch {
	case h == head{Hash: zeroHash} && len(last) == 0:
		if checkpoint != (mark{}) {
			return nil, nil // there was a log: this database was emptied
		}
	case key.ours(h.signedBefore(), h.Signature) && endsWith(h, last):
		genesis.Start = zeroHash
	default:
		return nil, nil
	}
	if genesis, err = key.begin(genesis, l.now()); err != nil {
		return nil, err
	}
	if err := tx.Insert(ctx, "audit_segments", genesis); err != nil {
		return nil, fmt.Errorf("audit: write genesis: %w", err)
	}
	c := &chain{genesis, head{Segment: 1, Seq: h.Seq, Hash: h.Hash}, key}
	if h.Seq == 0 {
		c.head.Hash = genesis.Start
	}
	return c, l.move(ctx, tx, c)
}

// endsWith reports whether the last entries end exactly with the one that the head names.
func endsWith(h head, last []Entry) bool {
	if h.Seq == 1 {
		return len(last) == 1 && last[0].Seq == 1 && last[0].chained(zeroHash) == h.Hash
	}
	return len(last) == 2 && last[1].Seq == h.Seq && last[1].Hash == h.Hash && last[1].chained(last[0].Hash) == h.Hash
}

// Append adds an entry in the caller's transaction. detail is encoded as JSON; nil means an empty
// object. The entry's texts are truncated to their limits.
//
// Before it extends the chain, Append checks that the end is as this service left it. If it is not,
// the entry goes to a new segment, after the record of the break; the change is not refused.
func (l *Log) Append(ctx context.Context, tx *db.Tx, e Entry, detail any) error {
	c, err := l.chainOf(ctx, tx)
	if err != nil {
		return err
	}
	_, err = l.extend(ctx, tx, c, e, detail)
	return err
}

// chainOf returns the chain that the transaction extends. Its own writes need no check.
func (l *Log) chainOf(ctx context.Context, tx *db.Tx) (*chain, error) {
	if c, ok := tx.Value(l).(*chain); ok {
		return c, nil
	}
	known := l.last() // before the head is read, which may be newer, but never older
	return l.chainFrom(ctx, tx, known, known.mark())
}

func (l *Log) chainFrom(ctx context.Context, tx *db.Tx, known chain, place mark) (*chain, error) {
	h, _, err := lockHead(ctx, tx)
	if err != nil {
		return nil, err
	}
	checked, findings, err := l.check(ctx, tx, h, known, place)
	if err != nil {
		return nil, err
	}
	c := &checked
	tx.SetValue(l, c)
	tx.OnCommit(func() { l.learn(*c) })
	if len(findings) > 0 {
		return c, l.beginAfterBreak(ctx, tx, c, h, findings, place)
	}
	return c, nil
}

// lockHead reads and locks the head. It recreates a missing row, so that there is something to
// lock.
func lockHead(ctx context.Context, tx *db.Tx) (h head, found bool, err error) {
	h, found, err = readHead(ctx, tx, tx.ForUpdate())
	if err != nil || found {
		return h, found, err
	}
	if _, err := tx.Exec(
		ctx,
		"INSERT INTO audit_head (one, segment, seq, hash, signature) VALUES (1, 0, 0, '', '') ON CONFLICT DO NOTHING",
	); err != nil {
		return head{}, false, fmt.Errorf("audit: make head: %w", err)
	}
	h, _, err = readHead(ctx, tx, tx.ForUpdate())
	return h, h.Seq > 0, err
}

// extend adds an entry to the chain and moves the head.
func (l *Log) extend(ctx context.Context, tx *db.Tx, c *chain, e Entry, detail any) (Entry, error) {
	e, err := complete(e, detail, l.now())
	if err != nil {
		return e, fmt.Errorf("audit: encode entry: %w", err)
	}
	e.Seq = c.head.Seq + 1
	e.Hash = e.chained(c.head.Hash)
	if err := tx.Insert(ctx, "audit_entries", e); err != nil {
		return e, fmt.Errorf("audit: append: %w", err)
	}
	c.head.Seq, c.head.Hash = e.Seq, e.Hash
	return e, l.move(ctx, tx, c)
}

// move signs and stores c's head.
func (l *Log) move(ctx context.Context, tx *db.Tx, c *chain) error {
	c.head.Signature = c.signer.sign(c.head.signed(&c.segment))
	if _, err := tx.Exec(
		ctx, "UPDATE audit_head SET segment = ?, seq = ?, hash = ?, signature = ? WHERE one = 1", c.head.Segment,
		c.head.Seq, c.head.Hash, c.head.Signature,
	); err != nil {
		return fmt.Errorf("audit: move head: %w", err)
	}
	return nil
}

// learn stores a committed chain. Commits may be reported out of order.
func (l *Log) learn(c chain) {
	l.mu.Lock()
	if c.segment.Log != l.known.segment.Log || c.mark().after(l.known.mark()) {
		l.known = c
	}
	l.mu.Unlock()
	wake(l.changed)
}

func (l *Log) last() chain {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known
}

func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
