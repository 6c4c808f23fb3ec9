package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/mainstay-infra/mainstay/api/hypervisor"
	"github.com/mainstay-infra/mainstay/cli/exit"
	"github.com/mainstay-infra/mainstay/cli/verb"
	"github.com/mainstay-infra/mainstay/cli/vm/daemon"
)

// transferPiece is the largest request of a transfer, in bytes, and rangesPage the most ranges of an
// answer.
const (
	transferPiece = 8 << 20
	rangesPage    = 10_000
)

func (s commands) disk() *cobra.Command {
	cmd := verb.Group("disk", "The disks of a VM: add, list, resize, limit, remove, and read or write the system disk",
		"  mainstay vm disk add web data --size 50G\n  mainstay vm disk read web web.raw", "disks")
	cmd.AddCommand(
		s.diskAdd(), s.diskList(), s.diskShow(), s.diskResize(), s.diskLimit(), s.diskRemove(), s.diskRead(), s.diskWrite(),
	)
	return cmd
}

func (s commands) diskRead() *cobra.Command {
	var consumer, since string
	var force bool
	cmd := s.Command(verb.Verb{
		Use:   "read VM FILE",
		Short: "Copy the system disk of a VM, also of one that runs, to a raw image",
		Long: `Copy the system disk of a VM to a raw image, as it is at this moment; the VM keeps running. With --consumer, the daemon keeps a
checkpoint, which the command prints. With --since CHECKPOINT, only what changed since then is written, into the FILE of
that time. If that fails, repeat it: until a copy is finished, the old checkpoint counts. Any other work on the VM ends
the copy.`,
		Example: "  mainstay vm disk read web web.raw\n  mainstay vm disk read web web.raw --consumer nightly\n" +
			"  mainstay vm disk read web web.raw --consumer nightly --since CHECKPOINT",
		Check: func(*cobra.Command, []string) error {
			if since != "" && consumer == "" {
				return exit.Usagef("--since takes a checkpoint of a --consumer; give that too")
			}
			if since != "" && force {
				return exit.Usagef("--since writes into a file that exists, which --force would empty")
			}
			return nil
		},
	}, func(ctx context.Context, c *daemon.Call) error {
		flags := os.O_WRONLY
		if since == "" {
			flags |= os.O_CREATE | os.O_EXCL
		}
		if force {
			flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
		}
		file, err := os.OpenFile(c.Args[1], flags, backupMode) //nolint:gosec // the user names it
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // what was written was synced
		t, err := openTransfer(ctx, c, hypervisorapi.TransferSpec{
			Direction: hypervisorapi.TransferDirectionRead,
			Consumer:  verb.Given(c, "consumer", consumer), Since: verb.Given(c, "since", since),
		})
		if err != nil {
			return err
		}
		var total int64
		err = c.While(ctx, "Reading the disk", func() (err error) {
			if since != "" && !t.Changed {
				err = file.Truncate(0) // everything is read
			}
			if err == nil {
				total, err = readTransfer(ctx, c, t, file)
			}
			return errors.Join(err, file.Sync())
		})
		if err := endTransfer(ctx, c, t, err); err != nil {
			return err
		}
		checkpoint := ""
		if t.Checkpoint != nil {
			checkpoint = " The checkpoint is " + *t.Checkpoint + "."
		}
		return c.Say("Wrote %s of the disk of %s to %s (%s).%s",
			verb.Bytes(total), c.Args[0], c.Args[1], t.Consistency, checkpoint)
	})
	cmd.Flags().StringVar(&consumer, "consumer", "", "who reads, for a checkpoint: letters, digits and dashes")
	cmd.Flags().StringVar(&since, "since", "", "a checkpoint: only write what changed since, into a file that exists")
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

func (s commands) diskWrite() *cobra.Command {
	var yes bool
	cmd := s.Command(verb.Verb{
		Use:     "write VM FILE",
		Short:   "Replace the system disk of a stopped VM by a raw image",
		Example: "  mainstay vm disk write web web.raw\n  mainstay vm disk write web web.raw --yes",
	}, func(ctx context.Context, c *daemon.Call) error {
		file, err := os.Open(c.Args[1])
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
		size, err := file.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		if err := c.Confirm("Replace the disk of "+c.Args[0]+"? What it holds now is lost.", yes); err != nil {
			return err
		}
		t, err := openTransfer(ctx, c, hypervisorapi.TransferSpec{
			Direction: hypervisorapi.TransferDirectionWrite, SizeBytes: &size,
		})
		if err != nil {
			return err
		}
		err = c.While(ctx, "Writing the disk", func() error { return writeTransfer(ctx, c, t, file, size) })
		if err := endTransfer(ctx, c, t, err); err != nil {
			return err
		}
		return c.Say("The disk of %s is what %s holds: %s.", c.Args[0], c.Args[1], verb.Bytes(size))
	})
	verb.YesFlag(cmd, &yes)
	return cmd
}

func openTransfer(
	ctx context.Context, c *daemon.Call, spec hypervisorapi.TransferSpec,
) (hypervisorapi.Transfer, error) {
	id, err := daemon.VMID(ctx, c, c.Args[0])
	if err != nil {
		return hypervisorapi.Transfer{}, err
	}
	a, err := c.Send(c.Slow.CreateTransfer(ctx, id, spec))
	return daemon.Decode[hypervisorapi.Transfer](a, err)
}

// endTransfer finishes a transfer, or aborts it if its data has not arrived.
func endTransfer(ctx context.Context, c *daemon.Call, t hypervisorapi.Transfer, err error) error {
	if err == nil {
		_, err = c.Send(c.Slow.FinishTransfer(ctx, t.Id, hypervisorapi.Nothing{}))
		return err
	}
	// The daemon ends it by itself otherwise. The context may have ended.
	_, _ = c.Send(c.API.DeleteTransfer(context.WithoutCancel(ctx), t.Id))
	return err
}

// readTransfer writes what a transfer says is to be read to a file as large as the disk.
func readTransfer(
	ctx context.Context, c *daemon.Call, t hypervisorapi.Transfer, file *os.File,
) (total int64, err error) {
	if err := file.Truncate(t.SizeBytes); err != nil {
		return 0, err
	}
	for from := int64(0); ; {
		params := &hypervisorapi.ListTransferRangesParams{From: &from, Limit: new(rangesPage)}
		a, err := c.Send(c.API.ListTransferRanges(ctx, t.Id, params))
		page, err := daemon.Decode[[]hypervisorapi.Range](a, err)
		if err != nil {
			return total, err
		}
		for _, r := range page {
			for at := r.Offset; at < r.Offset+r.Length; {
				n := min(r.Offset+r.Length-at, transferPiece)
				if err := readPiece(ctx, c, t.Id, at, n, file); err != nil {
					return total, err
				}
				at, total = at+n, total+n
			}
			from = r.Offset + r.Length
		}
		if len(page) < rangesPage {
			return total, nil
		}
	}
}

func readPiece(ctx context.Context, c *daemon.Call, id string, at, n int64, file io.WriterAt) error {
	r, err := c.Open(c.Slow.ReadTransfer(ctx, id, &hypervisorapi.ReadTransferParams{Offset: at, Length: int(n)}))
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }() // it was only read
	got, err := io.Copy(io.NewOffsetWriter(file, at), io.LimitReader(r.Body, n))
	if err == nil && got != n {
		err = fmt.Errorf("the daemon sent %d bytes instead of %d", got, n)
	}
	return err
}

// writeTransfer writes the pieces of a file that are not all zeros: the new disk begins as zeros.
func writeTransfer(ctx context.Context, c *daemon.Call, t hypervisorapi.Transfer, file io.ReaderAt, size int64) error {
	buffer, zeros := make([]byte, transferPiece), make([]byte, transferPiece)
	for at := int64(0); at < size; at += transferPiece {
		piece := buffer[:min(size-at, transferPiece)]
		if _, err := file.ReadAt(piece, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		var r *http.Response
		var err error
		if bytes.Equal(piece, zeros[:len(piece)]) {
			r, err = c.API.GetTransfer(ctx, t.Id) // which keeps it open
		} else {
			r, err = c.Slow.WriteTransferWithBody(
				ctx, t.Id, &hypervisorapi.WriteTransferParams{Offset: at}, "application/octet-stream", bytes.NewReader(piece),
			)
		}
		if _, err := c.Send(r, err); err != nil {
			return err
		}
	}
	return nil
}
