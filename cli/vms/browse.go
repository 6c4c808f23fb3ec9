package vms

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	vmapi "github.com/mainstay-infra/mainstay/api/vm"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/output"
	"github.com/mainstay-infra/mainstay/cli/verb"
)

const volumeUsage = "the volume; needed if more than one can be read (see: mainstay vms backup volumes)"

func (s commands) backupVolumes() *cobra.Command {
	return verb.List(s.session, verb.Verb{
		Use: "volumes BACKUP", Short: "List the file systems in a backup",
		Long: `List the file systems in a backup. A helper VM reads the backup, so the first command takes some seconds. It is
removed after five minutes without use.`,
		Example: "  mainstay vms backup volumes BACKUP",
	}, output.Columns[vmapi.BackupVolume]{
		Heads: []string{"NAME", "KIND", "LABEL", "SIZE", "FILES"},
		Row: func(v vmapi.BackupVolume) []any {
			files := "can be read"
			if v.Error != "" {
				files = v.Error
			}
			return []any{v.Name, v.Kind, v.Label, verb.Bytes(v.SizeBytes), files}
		},
	}, func(ctx context.Context, c *call, _ verb.Page) (*http.Response, error) {
		return c.Slow.OpenBackupVolumes(ctx, c.Args[0])
	})
}

// theVolume returns the volume that was named, or else the only one whose files can be read.
func theVolume(ctx context.Context, c *call, named string) (string, error) {
	if named != "" {
		return named, nil
	}
	a, err := c.Send(c.Slow.OpenBackupVolumes(ctx, c.Args[0]))
	all, err := decode[[]vmapi.BackupVolume](a, err)
	if err != nil {
		return "", err
	}
	var names []string
	for _, v := range all {
		if v.Error == "" {
			names = append(names, v.Name)
		}
	}
	switch len(names) {
	case 0:
		return "", exit.Usagef("the backup has no volume whose files can be read; see: mainstay vms backup volumes %s", c.Args[0])
	case 1:
		return names[0], nil
	}
	return "", exit.Usagef("the backup has several volumes; choose one with --volume: %s", strings.Join(names, ", "))
}

func (s commands) backupFiles() *cobra.Command {
	var volume string
	cmd := s.Command(verb.Verb{
		Use: "files BACKUP PATH", Short: "List a folder in a backup",
		Example: "  mainstay vms backup files BACKUP /etc\n  mainstay vms backup files BACKUP / --volume vdb2",
	}, func(ctx context.Context, c *call) error {
		from, err := theVolume(ctx, c, volume)
		if err != nil {
			return err
		}
		l := output.NewList(c.Out, output.Columns[vmapi.BackupFile]{
			Heads: []string{"MODE", "UID", "GID", "SIZE", "MODIFIED", "NAME"},
			Row: func(f vmapi.BackupFile) []any {
				name := f.Name
				if f.Target != nil {
					name += " -> " + *f.Target
				}
				return []any{f.Mode, f.Uid, f.Gid, verb.Bytes(f.SizeBytes), f.Modified, name}
			},
		})
		skipped := 0
		for after := ""; ; {
			params := vmapi.ListBackupFilesParams{Volume: from, Path: &c.Args[1]}
			if after != "" {
				params.After = &after
			}
			a, err := c.Send(c.Slow.ListBackupFiles(ctx, c.Args[0], &params))
			page, err := decode[struct {
				Entries []json.RawMessage `json:"entries"`
				More    bool              `json:"more"`
				Skipped int               `json:"skipped"`
			}](a, err)
			if err != nil {
				return err
			}
			if err := l.Page(page.Entries); err != nil {
				return err
			}
			skipped += page.Skipped
			if !page.More || len(page.Entries) == 0 {
				break
			}
			var last vmapi.BackupFile
			if err := json.Unmarshal(page.Entries[len(page.Entries)-1], &last); err != nil {
				return err
			}
			after = last.Name
		}
		if err := l.Close(); err != nil {
			return err
		}
		if skipped > 0 {
			c.Note("%d entries are left out, since their names are not UTF-8.", skipped)
		}
		return nil
	})
	cmd.Flags().StringVar(&volume, "volume", "", volumeUsage)
	return cmd
}

// fileMode is that of files that are taken out of backups: they may hold secrets.
const fileMode = 0o600

func (s commands) backupGetFile() *cobra.Command {
	var volume string
	var force bool
	cmd := s.Command(verb.Verb{
		Use: "get-file BACKUP PATH FILE", Short: "Take a file out of a backup; FILE - prints it",
		Example: "  mainstay vms backup get-file BACKUP /etc/fstab fstab\n" +
			"  mainstay vms backup get-file BACKUP /var/log/syslog - --volume vdb2 | tail",
	}, func(ctx context.Context, c *call) error {
		from, err := theVolume(ctx, c, volume)
		if err != nil {
			return err
		}
		return c.Export(c.Args[2], fileMode, force, func() (*http.Response, error) {
			return c.Slow.GetBackupFile(ctx, c.Args[0], &vmapi.GetBackupFileParams{Volume: from, Path: c.Args[1]})
		})
	})
	cmd.Flags().StringVar(&volume, "volume", "", volumeUsage)
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

func (s commands) backupClose() *cobra.Command {
	return s.Command(verb.Verb{
		Use: "close BACKUP", Short: "Remove the helper VM that reads a backup, before its time is over",
		Example: "  mainstay vms backup close BACKUP",
	}, func(ctx context.Context, c *call) error {
		if _, err := c.Send(c.Slow.CloseBackupVolumes(ctx, c.Args[0])); err != nil {
			return err
		}
		return c.Say("Closed the backup %s.", c.Args[0])
	})
}

func (s commands) backupBoot() *cobra.Command {
	cmd := s.Command(verb.Verb{
		Use: "boot BACKUP", Short: "Boot a backup, to see that it can be relied on",
		Long: `Boot a backup, without a network and without restoring it, until the agent of its guest answers. The VM is removed
afterwards. The service does this by itself for one backup a week. The guest must have the agent.`,
		Example: "  mainstay vms backup boot BACKUP",
	}, func(ctx context.Context, c *call) error {
		a, err := c.Send(c.API.BootBackup(ctx, c.Args[0], vmapi.Nothing{}))
		j, err := decode[vmapi.Job](a, err)
		if err != nil {
			return err
		}
		if c.NoWait() {
			return c.Done(a, "The backup %s is being booted by the job %s.", c.Args[0], j.Id)
		}
		if err := follow(ctx, c, "Booting "+c.Args[0], j.Id); err != nil {
			return err
		}
		return c.Done(a, "The backup %s has booted, and its guest's agent has answered.", c.Args[0])
	})
	verb.NoWaitFlag(cmd)
	return cmd
}
