package ota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/mainstay-infra/mainstay/kit/backoff"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/kit/routine"
	"github.com/mainstay-infra/mainstay/service/agent/store"
)

// Config holds the dependencies and settings of a Manager.
type Config struct {
	DB              *store.DB
	Folder          string        // for artifacts
	Hook            string        // the operator's program; empty means that updates are rejected
	MaxSize         int64         // maximum size of an artifact, in bytes
	Parallel        int           // devices updated at once
	HookTimeout     time.Duration // limit for one call
	RebootWait      time.Duration // from the reboot of a device to its verification
	DownloadTimeout time.Duration // from the request to the end of the download
	RetryAfterMax   time.Duration // maximum Retry-After that an artifact's server may request
	Client          *http.Client  // for artifacts
	// Firmware returns the known version of a device, or "" if it is unknown.
	Firmware func(ctx context.Context, device string) (string, error)
	Log      *slog.Logger
	Now      func() time.Time
	Rand     func() float64
}

// Manager performs updates. It is safe for concurrent use.
type Manager struct {
	cfg              Config
	wanted, reported chan struct{}

	mu        sync.Mutex
	running   map[string]run           // by device
	artifacts map[string]*artifactLock // by SHA-256
}

type run struct {
	request string
	stop    context.CancelFunc
}

// New creates a Manager on a database that package store opened.
func New(cfg Config) (*Manager, error) {
	if err := os.MkdirAll(cfg.Folder, 0o700); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "data: cannot make the folder %s", cfg.Folder)
	}
	return &Manager{
		cfg:       cfg,
		wanted:    make(chan struct{}, 1),
		reported:  make(chan struct{}, 1),
		running:   map[string]run{},
		artifacts: map[string]*artifactLock{},
	}, nil
}

func (m *Manager) nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Reported receives a value when there are new reports to send.
func (m *Manager) Reported() <-chan struct{} { return m.reported }

// Run performs updates until ctx ends. It returns when all hooks have ended.
func (m *Manager) Run(ctx context.Context) {
	if err := m.tidy(ctx); err != nil {
		m.cfg.Log.Warn("old artifacts could not be removed", "error", err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	slots := make(chan struct{}, m.cfg.Parallel)
	resumed := true // reboots that were pending when the agent stopped are over
	retry := backoff.Backoff{Min: time.Second, Max: time.Minute, Rand: m.cfg.Rand}
	for {
		updates, err := m.active(ctx)
		if err != nil {
			if ctx.Err() != nil || !backoff.Sleep(ctx, retry.Next(0)) {
				return
			}
			m.cfg.Log.Error("updates cannot be read", "error", err)
			continue
		}
		retry.Reset()
		for _, u := range updates {
			if m.isRunning(u.DeviceID) {
				continue
			}
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			// While this one waited for a slot, another update may have replaced it.
			u, ok, err := m.load(ctx, m.cfg.DB, u.DeviceID)
			life, started := context.Context(nil), false
			if err == nil && ok && !u.Phase.Terminal() {
				life, started = m.begin(ctx, u)
			}
			if !started {
				<-slots
				continue
			}
			rebooted := resumed && u.Phase == Rebooting
			work.Go(func() {
				defer func() {
					<-slots
					m.nudge(m.wanted)
				}()
				_ = routine.Run(m.cfg.Log, "update", func() { m.see(ctx, life, u, rebooted) }) // logged
			})
		}
		resumed = false
		select {
		case <-m.wanted:
		case <-ctx.Done():
			return
		}
	}
}

// see performs an update until it has ended or life ends. After a panic it resumes with the stored
// phase, with increasing delays.
func (m *Manager) see(ctx, life context.Context, u Update, rebooted bool) {
	defer m.end(u)
	broken := false
	routine.Keep(life, m.cfg.Log, "update", func(life context.Context) {
		now := u
		if broken {
			var ok bool
			var err error
			if now, ok, err = m.load(life, m.cfg.DB, u.DeviceID); err != nil || !ok || now.RequestID != u.RequestID {
				return // Run will load it again
			}
		}
		broken = true
		m.carryOut(life, now, rebooted)
	})
	if ctx.Err() != nil {
		return
	}
	if err := m.discard(ctx, u.SHA256); err != nil {
		m.cfg.Log.Warn("an artifact could not be removed", "device", u.DeviceID, "error", err)
	}
}

func (m *Manager) isRunning(device string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.running[device]
	return ok
}

func (m *Manager) begin(ctx context.Context, u Update) (context.Context, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.running[u.DeviceID]; ok {
		return nil, false
	}
	life, stop := context.WithCancel(ctx)
	m.running[u.DeviceID] = run{u.RequestID, stop}
	return life, true
}

func (m *Manager) end(u Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[u.DeviceID].stop()
	delete(m.running, u.DeviceID)
}

// interrupt cancels the work on an update.
func (m *Manager) interrupt(device, request string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.running[device]; ok && r.request == request {
		r.stop()
	}
}

// carryOut performs an update until it has ended, is replaced, or ctx ends.
func (m *Manager) carryOut(ctx context.Context, u Update, rebooted bool) {
	log := m.cfg.Log.With("device", u.DeviceID, "request", u.RequestID, "version", u.Version)
	retry := backoff.Backoff{Min: time.Second, Max: time.Minute, Rand: m.cfg.Rand}
	for !u.Phase.Terminal() {
		outcome, message, err := m.act(ctx, &u, rebooted)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			next := Next(u.Phase, outcome)
			if next == RolledBack || next == Failed && u.Phase == RollingBack {
				message = joined(u.Message, message) // keep why it was rolled back
			}
			log.Info("update", "from", string(u.Phase), "to", string(next), "message", message)
			var current bool
			if current, err = m.enter(ctx, &u, next, message); err == nil && !current {
				return
			}
		}
		if err != nil {
			// A problem of the database or the disk, which may recover. The phase is not done yet.
			log.Error("the update waits", "phase", string(u.Phase), "error", err)
			if !backoff.Sleep(ctx, retry.Next(0)) {
				return
			}
		}
	}
}

func joined(first, second string) string {
	switch {
	case first == "":
		return second
	case second == "":
		return first
	}
	return clean(first + "; rollback: " + second)
}

// act does the work of the update's phase. An error means that the phase must be retried; it is not
// an outcome.
func (m *Manager) act(ctx context.Context, u *Update, rebooted bool) (Outcome, string, error) {
	switch u.Phase {
	case Pending:
		return m.examine(ctx, u)
	case Downloading:
		return m.download(ctx, u)
	case Downloaded:
		return Done, "", nil
	case Installing:
		// The file may be missing if the folder was cleared.
		if _, err := os.Stat(m.artifact(u.SHA256)); err != nil {
			return Broken, "the artifact is not there any more", nil
		}
		return m.call(ctx, u, "install")
	case Rebooting:
		if !rebooted && !backoff.Sleep(ctx, m.cfg.RebootWait) {
			return Done, "", ctx.Err()
		}
		return Done, "", nil
	case Verifying:
		outcome, message, err := m.call(ctx, u, "verify")
		if outcome == Reboots {
			outcome = Broken
		}
		return outcome, message, err
	case RollingBack:
		outcome, message, err := m.call(ctx, u, "rollback")
		if outcome == Reboots {
			outcome = Broken
		}
		return outcome, message, err
	}
	return Broken, "", errors.New("phase " + string(u.Phase) + " has no work")
}

// examine decides whether to start an update.
func (m *Manager) examine(ctx context.Context, u *Update) (Outcome, string, error) {
	if m.cfg.Hook == "" {
		return Unwanted, "the agent has no program that installs updates; set --ota-hook", nil
	}
	if u.Size > m.cfg.MaxSize {
		return Unwanted, fmt.Sprintf("the artifact has %d bytes; --ota-max-size allows %d", u.Size, m.cfg.MaxSize), nil
	}
	if u.Forced {
		return Done, "", nil
	}
	version, err := m.cfg.Firmware(ctx, u.DeviceID)
	if err == nil && version != "" && version == u.Version {
		return Installed, "the device has version " + version, nil
	}
	return Done, "", err
}
