package vms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

// follow waits until a job has ended, and shows a text meanwhile. It returns the job's error.
func follow(ctx context.Context, c *call, text, id string) error {
	return c.Await(ctx, text, func(ctx context.Context, wait int) (verb.Job, error) {
		j, err := decode[vmapi.Job](c.Send(c.Slow.GetJob(ctx, id, &vmapi.GetJobParams{Wait: &wait})))
		now := verb.Job{Ended: true, Progress: float64(j.Progress)}
		switch j.Status {
		case vmapi.JobStatusQueued, vmapi.JobStatusRunning:
			now.Ended = false
		case vmapi.JobStatusCompleted:
		case vmapi.JobStatusCancelled:
			now.Err = errors.New("the job was cancelled")
		default:
			now.Err = errors.New(j.Error)
		}
		return now, err
	})
}

func (s commands) jobs() *cobra.Command {
	cmd := verb.Group("job", "Work that takes long: list it, wait for it, cancel it",
		"  mainstay vms job list\n  mainstay vms job wait JOB", "jobs")
	cmd.AddCommand(s.jobList(), s.jobShow(), s.jobWait(), s.jobWatch(), s.jobCancel())
	return cmd
}

func (s commands) jobList() *cobra.Command {
	var vm string
	cmd := verb.List(s.session, verb.Verb{
		Use: "list", Short: "List jobs under way, and those that ended within a day, newest first",
		Example: "  mainstay vms job list",
	}, output.Columns[vmapi.Job]{
		Heads: []string{"ID", "KIND", "VM", "STATUS", "PROGRESS", "ACTOR", "CREATED", "ERROR"},
		Row: func(j vmapi.Job) []any {
			return []any{j.Id, j.Kind, text(j.VmName), j.Status, fmt.Sprintf("%.0f%%", j.Progress*100), text(j.Actor), j.Created, j.Error}
		},
	}, func(ctx context.Context, c *call, p verb.Page) (*http.Response, error) {
		return c.API.ListJobs(ctx, &vmapi.ListJobsParams{Limit: p.Limit, Cursor: p.Cursor, Vm: verb.Given(c, "vm", vm)})
	})
	cmd.Flags().StringVar(&vm, "vm", "", "only those of the VM with this id")
	return cmd
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func (s commands) jobShow() *cobra.Command {
	return s.Object(verb.Verb{Use: "show JOB", Short: "Show one job", Example: "  mainstay vms job show JOB"},
		func(ctx context.Context, c *call) (*http.Response, error) {
			return c.API.GetJob(ctx, c.Args[0], &vmapi.GetJobParams{})
		})
}

func (s commands) jobWait() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "wait JOB", Short: "Wait until a job has ended; fails when the job did", Example: "  mainstay vms job wait JOB",
	}, func(ctx context.Context, c *call) error {
		if err := follow(ctx, c, "Waiting for "+c.Args[0], c.Args[0]); err != nil {
			return err
		}
		return c.Say("The job is completed.")
	})
}

func (s commands) jobWatch() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "watch JOB", Short: "Print a job as it changes, as server-sent events, until it has ended",
		Example: "  mainstay vms job watch JOB",
	}, func(ctx context.Context, c *call) error {
		r, err := c.Open(c.Slow.WatchJob(ctx, c.Args[0]))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		_, err = io.Copy(printable{c.Out.Out}, r.Body)
		return err
	})
}

// printable writes lines without what could move the cursor of a terminal.
type printable struct{ to io.Writer }

func (p printable) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		end := ""
		if strings.HasSuffix(line, "\n") {
			line, end = line[:len(line)-1], "\n"
		}
		if _, err := io.WriteString(p.to, output.Escape(line)+end); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

func (s commands) jobCancel() *cobra.Command {
	return s.Change(verb.Verb{
		Use: "cancel JOB", Short: "Ask a job to end; what it did so far is undone", Example: "  mainstay vms job cancel JOB",
	}, "Asked the job %s to end.", func(ctx context.Context, c *call) (*http.Response, error) {
		return c.API.CancelJob(ctx, c.Args[0], vmapi.Nothing{})
	})
}
