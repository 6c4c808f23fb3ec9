// Package compliance checks how VMs and their guests are set up, against profiles.
//
//	compliance.go  Scanner: begins and runs scans
//	check.go       checks, profiles, findings
//	vmchecks.go    checks of a VM's configuration: what this service knows
//	guest.go       what a guest is asked, and how its answers are bounded
//	guestchecks.go checks of a guest: what its agent tells
//
// # How a scan runs
//
//  1. Begin stores the scan of a running VM with its job, compliance.scan.
//  2. The job collects what the service knows about the VM, and asks the guest's agent. Then each check
//     of the profile judges that.
//  3. The findings are stored. A job that is interrupted begins again.
//
// # Invariants
//
//   - Programs in guests are run without a shell, only read, and are constants: no input is in them.
//   - What a guest answers is its own word. It is bounded in time and size, and a finding shows only
//     printable characters of it. What cannot be read is skipped, and never passes.
//   - Hashes of passwords do not leave the guest.
//   - At most one scan of a VM runs.
//
// It imports caller, dataplane, driver, job, netpolicy and record.
package compliance

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/vm/caller"
	"github.com/mainstay-infra/mainstay/service/vm/dataplane"
	"github.com/mainstay-infra/mainstay/service/vm/driver"
	"github.com/mainstay-infra/mainstay/service/vm/job"
	"github.com/mainstay-infra/mainstay/service/vm/record"
)

// Config holds the dependencies of a Scanner.
type Config struct {
	Store  *record.Store
	Driver *driver.Driver
	Jobs   *job.Runner
	// Network returns the network policy of a VM.
	Network func(ctx context.Context, r *record.VM) (dataplane.Status, error)
	Log     *slog.Logger
	Now     func() time.Time
}

// Scanner scans VMs.
type Scanner struct {
	store   *record.Store
	driver  *driver.Driver
	jobs    *job.Runner
	network func(ctx context.Context, r *record.VM) (dataplane.Status, error)
	log     *slog.Logger
	now     func() time.Time
}

// New returns a Scanner, and registers its kind of jobs.
func New(c Config) *Scanner {
	s := &Scanner{store: c.Store, driver: c.Driver, jobs: c.Jobs, network: c.Network, log: c.Log, now: c.Now}
	job.Register(s.jobs, record.JobScan, job.Kind[scanArgs]{Run: s.run, Cancelled: s.cancelled})
	return s
}

// scanArgs are the arguments of the job that scans a VM.
type scanArgs struct {
	Scan  string `json:"scan"`
	Actor string `json:"actor"`
}

// Begin stores a scan of a running VM, and begins its job.
func (s *Scanner) Begin(ctx context.Context, vm, profile string) (record.Scan, error) {
	if _, ok := profileOf(profile); !ok {
		return record.Scan{}, fault.InvalidField("profile_id", "must be %s or %s", Level1, Level2)
	}
	scan := record.Scan{ID: record.NewID(), Profile: profile}
	return s.store.AddScan(ctx, vm, scan, func(tx *db.Tx, r *record.VM) (string, error) {
		j := record.NewJob(record.JobScan, r)
		err := s.jobs.Begin(ctx, tx, &j, scanArgs{Scan: scan.ID, Actor: caller.From(ctx).Person()})
		return j.ID, err
	})
}

// run is the job compliance.scan.
func (s *Scanner) run(ctx context.Context, a scanArgs, progress func(float64)) error {
	ctx = caller.Acting(ctx, a.Actor)
	scan, err := s.store.Scan(ctx, a.Scan)
	switch {
	case fault.Is(err, fault.NotFound):
		return nil // the VM was deleted
	case err != nil:
		return err
	case scan.Status != record.ScanRunning:
		return nil // its end was stored before the service ended
	}
	err = s.scan(ctx, &scan, progress)
	if err == nil {
		return s.store.EndScan(context.WithoutCancel(ctx), scan)
	}
	if job.BrokenOff(ctx) {
		return err
	}
	reason := fault.From(err).Message
	if ctx.Err() != nil {
		reason = "the job was cancelled"
	}
	s.end(ctx, scan, reason)
	return err
}

// end stores why a scan failed.
func (s *Scanner) end(ctx context.Context, scan record.Scan, reason string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	failed := record.Scan{ID: scan.ID, VM: scan.VM, Status: record.ScanFailed, Error: reason}
	if err := s.store.EndScan(ctx, failed); err != nil {
		s.log.Error("the end of a scan was not stored", "scan", scan.ID, "error", err)
	}
}

// cancelled ends a scan whose job was cancelled before it ran.
func (s *Scanner) cancelled(ctx context.Context, a scanArgs) error {
	ctx = caller.ByItself(ctx)
	scan, err := s.store.Scan(ctx, a.Scan)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s.end(ctx, scan, "the job was cancelled")
	return nil
}

// scan collects facts, and has the checks of the profile judge them.
func (s *Scanner) scan(ctx context.Context, scan *record.Scan, progress func(float64)) error {
	profile, ok := profileOf(scan.Profile)
	if !ok {
		return fault.New(fault.Conflict, "there is no profile %s any more", scan.Profile)
	}
	r, err := s.store.VM(ctx, scan.VM)
	if err != nil {
		return err
	}
	if r.State != record.Running {
		return fault.New(fault.Conflict, "the VM is %s; a scan takes a running VM", r.State)
	}
	f := facts{now: s.now(), vm: r}
	if err := s.collect(ctx, &f); err != nil {
		return err
	}
	checks := profile.checks()
	f.guest, err = s.ask(ctx, &r, checks, progress)
	if err != nil {
		return err
	}
	scan.Status, scan.Passed, scan.Failed, scan.Skipped = record.ScanCompleted, 0, 0, 0
	scan.Findings.V = nil
	for i := range checks {
		v := checks[i].judge(&f)
		switch v.status {
		case Passed:
			scan.Passed++
		case Failed:
			scan.Failed++
		default:
			scan.Skipped++
		}
		scan.Findings.V = append(scan.Findings.V, record.Finding{
			Check: checks[i].ID, Status: v.status, Evidence: printable(v.evidence),
		})
	}
	return nil
}

// mostBackups is how many backups of a VM are looked at.
const mostBackups = 100

// collect reads what this service knows about the VM.
func (s *Scanner) collect(ctx context.Context, f *facts) (err error) {
	if f.backups, err = s.store.NewestBackups(ctx, f.vm.ID, mostBackups); err != nil {
		return err
	}
	if f.policies, err = s.store.Policies(ctx); err != nil {
		return err
	}
	if f.snapshots, err = s.store.Snapshots(ctx, f.vm.ID); err != nil {
		return err
	}
	f.network, err = s.network(ctx, &f.vm)
	return err
}

// Score returns the percentage of checks that passed, of those that passed or failed, with one decimal
// place. It is 0 if there are none.
func Score(passed, failed int) float64 {
	if passed+failed == 0 {
		return 0
	}
	const percent, decimals = 100, 10
	return math.Round(percent*decimals*float64(passed)/float64(passed+failed)) / decimals
}
