//go:build pam

// Command mainstay-pam asks the host's authentication stack (PAM) on behalf of Mainstay's services.
// It needs cgo, hence the build tag: it is built where a C compiler and PAM's headers are, with
//
//	CGO_ENABLED=1 go build -tags pam ./cmd/mainstay-pam
//
// "mainstay-pam serve" answers on a Unix socket. For each request it starts "mainstay-pam check",
// which reads the request from its standard input and writes the answer to its standard output.
// Package service/vm/pam describes both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/mainstay-infra/mainstay/service/vm/pam"
)

// version is set by the linker.
var version = "dev"

// checkTime is how long a request may take. Both the server and the service give up before.
const checkTime = 30 * time.Second

const usage = `Usage:
  mainstay-pam serve --uid UID[,UID] [--listen PATH] [--gid GID] [--service NAME[,NAME]] [--confdir DIR]
  mainstay-pam check [--confdir DIR]    answer one request from the standard input
  mainstay-pam version
`

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mainstay-pam:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("serve, check or version?")
	}
	switch args[0] {
	case "serve":
		return serve(args[1:])
	case "check":
		return check(args[1:], os.Stdin, os.Stdout)
	case "version":
		_, err := fmt.Fprintln(os.Stdout, version)
		return err
	case "help", "-h", "--help":
		_, err := fmt.Fprint(os.Stdout, usage)
		return err
	}
	fmt.Fprint(os.Stderr, usage)
	return fmt.Errorf("there is no command %q", args[0])
}

func serve(args []string) error {
	flags := flag.NewFlagSet("mainstay-pam serve", flag.ContinueOnError)
	listen := flags.String("listen", "/run/mainstay/pam.sock", "path of the socket")
	gid := flags.Int("gid", -1, "group `id` whose members may open the socket; -1 leaves it as it is")
	services := flags.String("service", "mainstay", "names that may be asked about, each a file in /etc/pam.d")
	confDir := flags.String("confdir", "", "folder that replaces /etc/pam.d")
	var uids []int
	flags.Func("uid", "user `ids` whose processes are answered; required", func(text string) error {
		for field := range strings.SplitSeq(text, ",") {
			var uid int
			if n, err := fmt.Sscanf(field+" .", "%d .", &uid); n != 1 || err != nil || uid < 0 {
				return fmt.Errorf("%q is not a user id", field)
			}
			uids = append(uids, uid)
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if len(uids) == 0 || flags.NArg() > 0 {
		return errors.New("--uid is required, and there are no arguments beside flags")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := pam.Listen(*listen, *gid)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	log.Info("listening", "path", *listen, "version", version)
	server := &pam.Server{
		UIDs: uids, Services: strings.Split(*services, ","), Program: self, ConfDir: *confDir, Log: log,
	}
	return server.Serve(ctx, l)
}

func check(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("mainstay-pam check", flag.ContinueOnError)
	confDir := flags.String("confdir", "", "folder that replaces /etc/pam.d")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := keepMemoryPrivate(); err != nil {
		return err
	}
	// Whoever started it may be gone by then.
	time.AfterFunc(checkTime, func() { os.Exit(2) })
	q, err := pam.ReadRequest(in)
	defer clear(q.Password)
	if err != nil {
		return err
	}
	return pam.WriteResponse(out, ask(q, *confDir))
}
