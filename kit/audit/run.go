package audit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/kit/telemetry"
)

const (
	betweenCheckpoints = time.Second
	firstVerification  = time.Minute
	betweenVerify      = 24 * time.Hour
	betweenLogLines    = time.Hour
	lastWrites         = 10 * time.Second // for the last writes when Run ends
)

// Run writes checkpoints, checks the end of the log every minute and the whole log every day, and
// records denied attempts that were only counted, until ctx ends.
func (l *Log) Run(ctx context.Context) {
	var work sync.WaitGroup
	loop := func(name string, run func(context.Context)) {
		work.Go(func() { routine.Keep(ctx, l.log, name, run) })
	}
	loop("audit checkpoints", l.writeCheckpoints)
	loop("audit watch", l.watch)
	loop("audit verification", l.verifyDaily)
	if l.sender != nil {
		loop("audit sender", l.sender.run)
	}
	work.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
	defer cancel()
	if err := errors.Join(l.recordDenied(ending), l.WriteCheckpoint()); err != nil {
		l.log.Error("the audit log's last writes failed", "error", err)
	}
}

// writeCheckpoints writes a checkpoint after changes, at most one per second.
func (l *Log) writeCheckpoints(ctx context.Context) {
	trouble := telemetry.NewTrouble(l.log, "audit checkpoints cannot be written")
	logged := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
		err := l.WriteCheckpoint()
		trouble.Report(err)
		if err != nil {
			wake(l.changed) // retry after the pause
		}
		if p := l.newest(); p.Seq > 0 && time.Since(logged) >= betweenLogLines {
			logged = time.Now()
			l.log.Info(
				"audit checkpoint", "genesis", p.Genesis, "segment", p.Segment, "seq", p.Seq, "hash", p.Hash,
				"signature", p.Signature,
			)
		}
		timer := time.NewTimer(betweenCheckpoints)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

func (l *Log) newest() Checkpoint {
	if l.checkpoints == nil {
		return Checkpoint{}
	}
	return l.checkpoints.newest()
}

// WriteCheckpoint writes the end of the log to the file, unless the file already has it.
func (l *Log) WriteCheckpoint() error {
	c := l.last()
	if l.checkpoints == nil || c.segment.ID == "" || l.checkpoints.newest().mark() == c.mark() {
		return nil
	}
	p := c.signer.checkpoint(c, l.now())
	if err := l.checkpoints.add(p); err != nil {
		return err
	}
	l.metrics.checkpoint.Set(float64(p.Time.Unix()))
	if l.sender != nil {
		l.sender.offer(p)
	}
	return nil
}

// watch checks the end of the log even if nothing is appended.
func (l *Log) watch(ctx context.Context) {
	trouble := telemetry.NewTrouble(l.log, "the audit log cannot be checked")
	tick := time.NewTicker(minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := errors.Join(l.Check(ctx), l.recordDenied(ctx))
		if ctx.Err() == nil {
			trouble.Report(err)
		}
	}
}

// Check checks the end of the log like Append, and also the segments. It begins a new segment if a
// check fails.
func (l *Log) Check(ctx context.Context) error {
	err := l.db.Update(ctx, func(tx *db.Tx) error {
		_, err := l.chainFrom(ctx, tx, chain{}, l.last().mark())
		return err
	})
	return errors.Join(err, l.readBroken(ctx))
}

// verifyDaily verifies the whole log every day, and when a break was found.
func (l *Log) verifyDaily(ctx context.Context) {
	trouble := telemetry.NewTrouble(l.log, "the audit log cannot be verified")
	timer := time.NewTimer(firstVerification)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.verifyNow:
		case <-timer.C:
		}
		began := time.Now()
		_, err := l.Inspect(ctx)
		if ctx.Err() == nil {
			trouble.Report(err)
		}
		// Constant tampering must not use up a processor.
		rest := time.NewTimer(4 * time.Since(began))
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
		timer.Reset(betweenVerify)
	}
}

// metrics are the Prometheus metrics of a log.
type metrics struct {
	broken     atomic.Int64
	suppressed prometheus.Counter
	checkpoint prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "audit_denied_suppressed_total",
			Help: "Denied attempts that were counted in the audit log, and got no entry of their own.",
		}),
		checkpoint: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "audit_checkpoint_timestamp_seconds",
			Help: "When the newest checkpoint of the audit log was written.",
		}),
	}
	if r != nil {
		r.MustRegister(m.suppressed, m.checkpoint, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "audit_broken",
			Help: "1 while the audit log has a break that nobody has acknowledged.",
		}, func() float64 { return float64(m.broken.Load()) }))
	}
	return m
}
