//go:build linux

package qemu_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mainstay-infra/mainstay/kit/require"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/qemu"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo"
	"github.com/mainstay-infra/mainstay/service/hypervisor/demo/demotest"
	"github.com/mainstay-infra/mainstay/service/hypervisor/qmp"
)

func machine(t *testing.T, board qemu.Type) qemu.Machine {
	t.Helper()
	needQEMU(t)
	folder, err := os.MkdirTemp("", "vm,") // t.TempDir is too long for a socket's path; a comma must do no harm
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	guest := demotest.Guest(t)
	m := qemu.Machine{
		Name:        "a,b",
		UUID:        "00000000-0000-4000-8000-000000000001",
		Folder:      folder,
		Type:        board,
		Accelerator: "tcg",
		VCPUs:       2,
		MemoryMiB:   256,
		Kernel:      guest.Kernel,
		Initrd:      guest.Initrd,
		KernelArgs:  "console=ttyS0 reboot=t panic=-1 quiet",
		Agent:       true,
		Screen:      board == qemu.Q35,
		NICs:        []qemu.NIC{{ID: "nic0", MAC: "52:54:00:00:00:01"}},
	}
	for _, d := range []qemu.Disk{{ID: "disk0", Format: "qcow2"}, {ID: "disk1", Format: "raw", ReadOnly: true}} {
		d.Path = filepath.Join(folder, d.ID+",x")
		if out, err := exec.CommandContext(
			t.Context(), "qemu-img", "create", "-q", "-f", d.Format, d.Path, "8M",
		).CombinedOutput(); err != nil { //nolint:gosec // the test's own
			t.Fatalf("%v\n%s", err, out)
		}
		m.Disks = append(m.Disks, d)
	}
	return m
}

func needQEMU(t *testing.T) {
	t.Helper()
	for _, name := range []string{program, "qemu-img"} {
		if _, err := exec.LookPath(name); err != nil {
			require.Missing(t, "%s is not installed", name)
		}
	}
}

// console is a machine's serial console.
type console struct {
	*testing.T
	net.Conn
	lines *bufio.Scanner
	seen  strings.Builder
}

func (c *console) await(text string) {
	c.Helper()
	for c.lines.Scan() {
		c.seen.WriteString(c.lines.Text() + "\n")
		if strings.Contains(c.lines.Text(), text) {
			return
		}
	}
	c.Fatalf("%q is not on the console:\n%s", text, c.seen.String())
}

func (c *console) say(line string) {
	c.Helper()
	if _, err := fmt.Fprintln(c, line); err != nil {
		c.Fatal(err)
	}
}

func TestMachinesBootWithTheirDevicesOnBothBoards(t *testing.T) {
	t.Parallel()
	for _, board := range []qemu.Type{qemu.Q35, qemu.MicroVM} {
		t.Run(string(board), func(t *testing.T) {
			t.Parallel()
			m := machine(t, board)
			if board == qemu.MicroVM {
				m.VCPUs = 1
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if err := os.Mkdir(filepath.Join(m.Folder, "run"), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(ctx, "qemu-system-x86_64", m.Args()...) //nolint:gosec // the test's own
			cmd.Dir = m.Folder
			var said strings.Builder
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			monitor, err := qmp.Dial(ctx, filepath.Join(m.Folder, "run", "qmp.sock"), qmp.Options{Wait: true})
			if err != nil {
				cancel()
				t.Fatalf("%v\n%v\n%s", err, <-ended, said.String())
			}
			defer monitor.Close()
			shutdowns := monitor.Subscribe("SHUTDOWN")
			defer shutdowns.Close()
			conn, err := net.Dial("unix", filepath.Join(m.Folder, "run", "serial.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
			c := &console{T: t, Conn: conn, lines: bufio.NewScanner(conn)}

			c.await(demo.Ready)
			c.say(
				"cat /sys/block/vda/size /sys/block/vdb/ro /sys/class/net/eth0/address; cat /sys/class/virtio-ports/*/name; nproc",
			)
			for _, want := range []string{"16384", "1", "52:54:00:00:00:01", qemu.AgentPort, fmt.Sprint(m.VCPUs)} { // 8 MiB in sectors
				c.await(want)
			}
			var blocks []struct {
				Inserted struct {
					NodeName string `json:"node-name"`
					File     string
					RO       bool
				}
			}
			err = monitor.Execute(ctx, "query-block", nil, &blocks)
			if board == qemu.Q35 && err == nil {
				blocks = blocks[1:] // the drive for CDs, which is empty
			}
			if err != nil || len(blocks) != 2 || blocks[0].Inserted.NodeName != "disk0" || blocks[0].Inserted.File != m.Disks[0].Path ||
				!blocks[1].Inserted.RO {
				t.Errorf("%+v, %v", blocks, err)
			}
			if m.Screen {
				screen, err := net.Dial("unix", filepath.Join(m.Folder, "run", "vnc.sock"))
				if err != nil {
					t.Fatal(err)
				}
				hello := make([]byte, 4)
				if _, err := screen.Read(hello); err != nil || string(hello) != "RFB " {
					t.Errorf("the screen says %q, %v", hello, err)
				}
				_ = screen.Close()
			}
			c.say("poweroff -f")
			e, err := shutdowns.Next(ctx)
			var end qmp.Shutdown
			if err == nil {
				err = e.Decode(&end)
			}
			if err != nil || !end.Guest {
				t.Errorf("%+v, %v", end, err)
			}
			if err := monitor.Quit(ctx); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("%v: %s", err, said.String())
			}
		})
	}
}
