//go:build linux

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mainstay-infra/mainstay/service/hypervisor/backend"
	"github.com/mainstay-infra/mainstay/service/hypervisor/backend/process"
)

// id is the name of every sandbox in its own state folder.
const id = "vm"

// Files in the state folder beside runsc's own.
const (
	configFile = "config.json" // the state folder is the bundle, too
	pidFile    = "pid"
	errorFile  = "error.log"
	panicFile  = "panic.log" // what the sandbox's kernel said when it broke
	endFile    = "end"       // its counters, which it writes when it ends in order
)

func stateFolder(s *backend.Spec) string { return filepath.Join(s.Folder, "runsc") }

// rootFlag returns the argument that all processes of a sandbox have.
func rootFlag(state string) string { return "--root=" + state }

// global returns the flags that precede every runsc command.
func (b *Backend) global(state string) []string {
	return []string{
		rootFlag(state), "--platform=systrap", "--network=none", "--ignore-cgroups", "--gofer-network-namespace=new",
		fmt.Sprintf("--overlay2=root:dir=%s,size=%dm", state, b.options.WritableMiB),
		"--panic-log=" + filepath.Join(state, panicFile), "--final-metrics-log=" + filepath.Join(state, endFile),
	}
}

// begin creates a sandbox with the command run or restore, which starts it and returns. Its
// standard files would become the first process's, so it gets none of ours. runsc also holds the
// lock, from before it can be identified by its arguments.
func (b *Backend) begin(ctx context.Context, lock *os.File, state string, command ...string) error {
	log := filepath.Join(state, errorFile)
	argv := append(b.global(state), "--log="+log)
	argv = append(
		append(argv, command...), "--detach", "--bundle="+state, "--pid-file="+filepath.Join(state, pidFile), id,
	)
	cmd := b.command(ctx, argv...)
	cmd.ExtraFiles = []*os.File{lock}
	err := cmd.Run()
	if err == nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	said, readErr := process.Head(log, mostSaid)
	if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
		return errors.Join(err, readErr)
	}
	var first struct{ Msg string }
	if json.NewDecoder(bytes.NewReader(said)).Decode(&first) == nil {
		said = []byte(first.Msg)
	}
	return fmt.Errorf("runsc %s: %w: %s", command[0], err, words(said))
}

// run runs a command on the sandbox and returns its output.
func (b *Backend) run(ctx context.Context, state string, command ...string) ([]byte, error) {
	cmd := b.command(ctx, append(b.global(state), command...)...)
	var out, said head
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("runsc %s: %w: %s", command[0], err, words(said.kept)), ctx.Err())
	}
	return out.kept, nil
}

// mostSaid limits how much output of a sandbox's processes is read, in bytes: a guest may have
// taken over its kernel, which writes to the logs and answers runsc.
const mostSaid = 1 << 20

// head keeps the beginning of what is written.
type head struct{ kept []byte }

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), mostSaid-len(h.kept))]...)
	return len(p), nil
}

// command returns a runsc command in its own session, so that signals to the daemon's terminal do
// not reach it.
func (b *Backend) command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(
		ctx,
		b.options.Program,
		argv...) //nolint:gosec // flags are ours, and values are part of one
	cmd.Env = []string{} // nothing of the daemon's
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// words returns the beginning of a program's output as one printable line. runsc prints first what
// went wrong, then where in its code.
func words(said []byte) string {
	const most = 1000
	text := strings.ToValidUTF8(string(said[:min(len(said), most)]), "?")
	if text = strings.Join(strings.Fields(text), " "); text == "" {
		return "it said nothing"
	}
	return text
}
