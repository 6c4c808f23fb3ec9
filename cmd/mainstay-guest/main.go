//go:build linux

// Command mainstay-guest is the agent that runs in a virtual machine and executes the hypervisor
// daemon's requests. It requires nothing of the guest but its secret.
//
//	mainstay-guest          serve the virtio-serial port or vsock, until a signal
//	mainstay-guest init     run as the first process of a sandbox: keep an agent running, reap
//	mainstay-guest relay    connect standard input and output to the agent of a sandbox
//
// In a guest that was made to look into disks of other machines (package volumes), these write JSON:
//
//	mainstay-guest volumes                      find file systems, and mount them read-only
//	mainstay-guest files VOLUME PATH [AFTER]    the entries of a folder, after a name
//	mainstay-guest resolve VOLUME PATH          where a file is, without links
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/agent"
	"github.com/mainstay-infra/mainstay/service/hypervisor/guest/volumes"
)

// version is set by the linker.
var version = "dev"

func main() {
	secret := flag.String("secret-file", "/run/mainstay-guest/secret", "file with the secret, of mode 0600")
	socket := flag.String("unix", "", "serve this Unix socket instead of what the machine has")
	kmsg := flag.Bool("kmsg", false, "log to the kernel's log, as always where standard error is the console")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(logTo(*kmsg), nil))
	if flag.NArg() > 0 {
		err := command(ctx, flag.Args(), *secret)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(exitCode(err))
	}
	a, err := agent.New(agent.Config{Version: version, SecretFile: *secret, Log: log})
	if err == nil {
		if *socket != "" {
			err = a.ServeUnix(ctx, *socket)
		} else {
			err = serveMachine(ctx, a)
		}
		a.Wait()
	}
	if err != nil && ctx.Err() == nil {
		log.Error("the agent ends", "error", err)
		os.Exit(1)
	}
}

// exitCode returns the exit code for an error of a command: 4 for a path that does not exist on a volume,
// 5 for a volume that is not mounted.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, volumes.ErrNotFound):
		return 4
	case errors.Is(err, volumes.ErrNoVolume):
		return 5
	}
	return 1
}

// sandboxSocket is the socket of a sandbox's agent, used by relays.
const sandboxSocket = "/run/mainstay-guest/agent.sock"

func command(ctx context.Context, words []string, secret string) error {
	switch strings.Join(words, " ") {
	case "init":
		if _, err := os.Stat(secret); errors.Is(err, os.ErrNotExist) {
			return agent.Init(ctx, nil) // without a secret nobody may talk to an agent
		}
		return agent.Init(ctx, []string{"/.mainstay/mainstay-guest", "--secret-file", secret, "--unix", sandboxSocket})
	case "relay":
		return agent.Relay(ctx, sandboxSocket, os.Stdin, os.Stdout)
	}
	out, err := inspect(words)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// inspect runs a command that looks into disks, and returns what it found.
func inspect(words []string) (any, error) {
	words = append(words, make([]string, 3)...)
	switch words[0] {
	case "volumes":
		return volumes.Guest.Open()
	case "files":
		return volumes.Guest.Files(words[1], filepath.Join("/", words[2]), words[3])
	case "resolve":
		return volumes.Guest.Resolve(words[1], words[2])
	}
	return nil, errors.New("the commands are init, relay, volumes, files and resolve")
}

// logTo returns where the log goes. On the console, where somebody may be at a prompt, it would be in the
// way.
func logTo(kmsg bool) io.Writer {
	if kmsg || isConsole(os.Stderr) {
		if f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
			return kernelLog{f}
		}
	}
	return os.Stderr
}

// isConsole reports whether a file is /dev/console.
func isConsole(f *os.File) bool {
	const ttyMajor, consoleMinor = 5, 1
	var at unix.Stat_t
	return unix.Fstat(int(f.Fd()), &at) == nil && at.Mode&unix.S_IFMT == unix.S_IFCHR &&
		at.Rdev == unix.Mkdev(ttyMajor, consoleMinor)
}

// kernelLog writes each line as a record of a daemon, at the level of debugging: the kernel prints
// others on the console, unless it was told to be quiet.
type kernelLog struct{ w io.Writer }

const daemonDebug = "<31>"

func (k kernelLog) Write(line []byte) (int, error) {
	if _, err := k.w.Write(append([]byte(daemonDebug), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// serveMachine serves the virtio-serial port or vsock, whichever exists. Their drivers may still be
// loading.
func serveMachine(ctx context.Context, a *agent.Agent) error {
	var vsock chan error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		port, err := agent.FindPort(agent.PortName)
		if err == nil {
			return a.ServeVirtio(ctx, port)
		}
		if _, err := os.Stat("/dev/vsock"); err == nil && vsock == nil {
			vsock = make(chan error, 1)
			go func() { vsock <- a.ServeVsock(ctx) }()
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if vsock == nil {
		return errors.New("this machine has neither a virtio-serial port named " + agent.PortName + " nor vsock")
	}
	return <-vsock
}
