package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	storageapi "github.com/mainstay-infra/mainstay/api/storage"
	"github.com/mainstay-infra/mainstay/cli/client"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// begun is the part that all answers to requests that begin a job have.
type begun struct {
	JobID    string `json:"job_id"`
	Resource struct {
		VolumeID   string `json:"volume_id"`
		SnapshotID string `json:"snapshot_id"`
		BackupID   string `json:"backup_id"`
		BucketID   string `json:"bucket_id"`
	} `json:"resource"`
}

// await waits for the end of the job that a request has begun, and calls done with what it is about. With --no-wait it
// prints the job instead.
func await(ctx context.Context, c *call, text string, r *http.Response, err error, done func(begun) error) error {
	b, err := decode[begun](c.Send(r, err))
	if err != nil {
		return err
	}
	if c.NoWait() {
		a, err := jobOf(ctx, c, b.JobID)
		if err != nil {
			return err
		}
		return c.Done(a, "The job %s has begun; 'mainstay storage job wait %s' waits for its end.", b.JobID, b.JobID)
	}
	if err := follow(ctx, c, text, b.JobID); err != nil {
		return err
	}
	return done(b)
}

// jobOf returns a job as it is now.
func jobOf(ctx context.Context, c *call, id string) (client.Answer, error) {
	return c.Send(c.API.GetJob(ctx, id, nil))
}

// follow waits until a job has ended. It returns the job's error.
func follow(ctx context.Context, c *call, text, id string) error {
	err := c.Await(ctx, text, func(ctx context.Context, wait int) (verb.Job, error) {
		j, err := decode[storageapi.Job](c.Send(c.Slow.GetJob(ctx, id, &storageapi.GetJobParams{Wait: &wait})))
		return verb.Job{Ended: ended(&j), Err: failure(&j), Progress: float64(j.Progress)}, err
	})
	if err != nil && ctx.Err() != nil {
		return exit.Hinted(err, fmt.Sprintf("the job goes on; 'mainstay storage job wait %s' waits for its end", id))
	}
	return err
}

func ended(j *storageapi.Job) bool {
	return j.State == storageapi.JobStateSucceeded || j.State == storageapi.JobStateFailed
}

// failure returns why a job has failed, or nil if it has not.
func failure(j *storageapi.Job) error {
	switch {
	case j.State != storageapi.JobStateFailed:
		return nil
	case j.Error == nil:
		return errors.New("the job has failed")
	}
	return exit.Hinted(errors.New(output.Escape(j.Error.Message)), fmt.Sprintf("'mainstay storage job show %s' tells more", j.Id))
}

// keyFlag defines --idempotency-key, for commands that begin a job. The returned function reads it once the command
// runs.
func keyFlag(cmd *cobra.Command) func() *string {
	key := cmd.Flags().String("idempotency-key", "",
		"word of your choice; when the command is repeated with it, the same job answers")
	return func() *string {
		if *key == "" {
			return nil
		}
		return key
	}
}

// jobFlags defines the flags of commands that begin a job.
func jobFlags(cmd *cobra.Command) (key func() *string) {
	verb.NoWaitFlag(cmd)
	return keyFlag(cmd)
}

func (s commands) jobs() *cobra.Command {
	cmd := verb.Group("job", "Work that takes long: list it, wait for it, cancel it",
		"  mainstay storage job list --state running\n  mainstay storage job wait JOB", "jobs")
	cmd.AddCommand(s.jobList(), s.jobShow(), s.jobWait(), s.jobWatch(), s.jobCancel())
	return cmd
}

func (s commands) jobList() *cobra.Command {
	var state, kind, about, tenant string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List jobs, newest first",
		Example: "  mainstay storage job list\n  mainstay storage job list --state failed --kind volume.create\n" +
			"  mainstay storage job list --about VOLUME-ID --all -o json",
	}, output.Columns[storageapi.Job]{
		Heads: []string{"ID", "KIND", "STATE", "PROGRESS", "ABOUT", "TENANT", "ACTOR", "CREATED", "ERROR"},
		Row: func(j storageapi.Job) []any {
			why := ""
			if j.Error != nil {
				why = j.Error.Message
			}
			return []any{j.Id, j.Kind, j.State, percent(&j), subject(&j), j.Tenant, j.Actor, j.CreatedAt, why}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListJobs(ctx, &storageapi.ListJobsParams{
			Limit: p.Limit, Cursor: p.Cursor, State: verb.Given(c, "state", storageapi.JobState(state)),
			Kind: verb.Given(c, "kind", kind), Resource: verb.Given(c, "about", about), Tenant: verb.Given(c, "tenant", tenant),
		})
	})
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "only those in this state: pending, queued, running, verifying, succeeded or failed")
	f.StringVar(&kind, "kind", "", "only those of this kind, such as volume.create")
	f.StringVar(&about, "about", "", "only those about the object with this id")
	f.StringVar(&tenant, "tenant", "", "only those of this tenant")
	return cmd
}

func percent(j *storageapi.Job) string { return fmt.Sprintf("%.0f%%", j.Progress*100) }

// subject returns what a job is about, by its name if that is known.
func subject(j *storageapi.Job) any {
	switch j.Resource.Type {
	case storageapi.JobResourceTypeVolume:
		return output.Ref{Kind: "VOLUME", ID: j.Resource.Id}
	case storageapi.JobResourceTypeSnapshot:
		return output.Ref{Kind: "SNAPSHOT", ID: j.Resource.Id}
	}
	return string(j.Resource.Type) + " " + j.Resource.Id
}

func (s commands) jobShow() *cobra.Command {
	return s.Object(verb.Verb{Use: "show JOB", Short: "Show one job", Example: "  mainstay storage job show JOB"},
		func(ctx context.Context, c *call) (*http.Response, error) { return c.API.GetJob(ctx, c.Args[0], nil) })
}

func (s commands) jobWait() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "wait JOB", Short: "Wait until a job has ended; fails when the job did", Example: "  mainstay storage job wait JOB",
	}, func(ctx context.Context, c *call) error {
		if err := follow(ctx, c, "Waiting for "+c.Args[0], c.Args[0]); err != nil {
			return err
		}
		a, err := jobOf(ctx, c, c.Args[0])
		if err != nil {
			return err
		}
		return c.Done(a, "The job has succeeded.")
	})
}

func (s commands) jobWatch() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "watch JOB", Short: "Print a job as it changes, until it has ended; fails when the job did",
		Long: `Print a job as it changes, until it has ended; fails when the job did. When the connection breaks, the command
reconnects. --output json prints one object per line.`,
		Example: "  mainstay storage job watch JOB\n  mainstay storage job watch JOB --output json",
	}, func(ctx context.Context, c *call) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var last storageapi.Job
		err := c.Follow(ctx, "", func(ctx context.Context, last string) (*http.Response, error) {
			params := &storageapi.WatchJobParams{}
			if last != "" {
				params.LastEventID = &last
			}
			return c.Slow.WatchJob(ctx, c.Args[0], params, verb.AcceptEvents)
		}, func(_, data string) error {
			j, err := decode[storageapi.Job](client.Answer{Body: []byte(data)}, nil)
			if err != nil {
				return err
			}
			if last = j; ended(&j) {
				stop() // the stream has nothing more
			}
			return c.Out.Line(json.RawMessage(data), func() string {
				return fmt.Sprintf("%s  %s %s, %s", time.Now().UTC().Format(time.RFC3339), j.Kind, j.State, percent(&j))
			})
		})
		return errors.Join(err, failure(&last))
	})
}

func (s commands) jobCancel() *cobra.Command {
	return s.Change(verb.Verb{
		Use: "cancel JOB", Short: "Ask a job to end; what it did so far is undone as far as that is safe",
		Example: "  mainstay storage job cancel JOB",
	}, "Asked the job %s to end.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.CancelJob(ctx, c.Args[0], storageapi.Nothing{})
	})
}
