// Program devcluster runs a Kubernetes control plane in one process: etcd, kube-apiserver, kube-controller-manager
// and kube-scheduler, each the real one. It is for tests and for trying things out. No container runs in it, since it
// has no nodes.
//
//	devcluster up --dir DIR [--crds FILE-OR-DIR]... [--until-eof]
//
//	main.go         reads the command line, and starts and stops the parts in order
//	folder.go       the folder of a cluster: its lock, its port
//	credentials.go  certificates, keys and the kubeconfig
//	components.go   the four components
//	crds.go         CustomResourceDefinitions that a cluster has from the beginning
//
// # Invariants
//
//   - All is in one folder, which is locked while the process runs. A process that was killed leaves a folder that the
//     next one starts from.
//   - The kubeconfig, and with it the port, stay the same as long as the folder does, so clients need not know that the
//     process was started again.
//   - It listens on 127.0.0.1 only, and on every port it asks for a certificate. The authority of etcd's certificates
//     is another one than that of the API, so nobody gets around the API server.
//   - "ready" is printed when the API server answers, the CRDs are served, and the controllers work.
//
// It is a module of its own, because k8s.io/kubernetes needs replace directives for its 29 staging modules. etcd does
// not wait for the disk (fsync), so data may be lost when the machine loses power.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}

const usage = "usage: devcluster up --dir DIR [--crds FILE-OR-DIR]... [--until-eof]"

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "up" {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("devcluster up", flag.ContinueOnError)
	dir := flags.String("dir", "", "folder of the cluster; created if it does not exist")
	var crds []string
	flags.Func("crds", "YAML file, or folder of such files, with CRDs to install; may be repeated",
		func(path string) error {
			crds = append(crds, path)
			return nil
		})
	untilEOF := flags.Bool("until-eof", false, "stop when standard input ends, as it does when the caller is killed")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return errors.New(usage)
	}
	path, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	if *untilEOF {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // its end, or that it cannot be read
			stop()
		}()
	}
	return up(ctx, path, crds)
}

// step prints what begins now.
func step(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// stopWithin bounds how long a component may take to stop.
const stopWithin = 5 * time.Second

// part is a component that runs.
type part struct {
	name  string
	stop  context.CancelFunc
	ended chan struct{} // closed at its end
	err   error         // after ended
}

// start runs a component. broken gets its name and error if it ends before it is stopped.
func start(name string, broken chan<- error, run func(ctx context.Context) error) *part {
	ctx, cancel := context.WithCancel(context.Background())
	p := &part{name: name, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = run(ctx)
		if ctx.Err() == nil {
			broken <- fmt.Errorf("%s has ended: %w", name, p.err)
		}
	}()
	return p
}

// halt stops a component. One that takes longer is left to the end of the process.
func (p *part) halt() {
	p.stop()
	select {
	case <-p.ended:
	case <-time.After(stopWithin):
	}
}

// up runs a cluster until ctx ends. The components stop in the opposite order, so that none loses what it writes to.
func up(ctx context.Context, dir string, crds []string) (err error) {
	manifests, err := readCRDs(crds)
	if err != nil {
		return err
	}
	f, err := openFolder(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	listener, err := f.listen()
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // the API server may have closed it
	if err := f.writeKubeconfig(listener.Addr().String()); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.path(kubeconfigFile))
	if err != nil {
		return err
	}
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}

	broken := make(chan error, 3) // one for each part
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-broken:
			cancel(err)
		case <-ctx.Done():
		}
	}()

	step("etcd starts")
	etcd, err := startEtcd(ctx, f)
	if err != nil {
		return err
	}
	defer etcd.Close()
	step("kube-apiserver starts on %s", listener.Addr())
	defer start("kube-apiserver", broken, apiserver(f, listener, etcd.Clients[0].Addr().String())).halt()
	if err := await(ctx, func(ctx context.Context) bool { return ready(ctx, config) }); err != nil {
		return ended(ctx)
	}
	if len(manifests) > 0 {
		step("%d CRDs are installed", len(manifests))
	}
	// Before the controllers start: the quota controller counts custom resources that are known at its start.
	if err := installCRDs(ctx, client, manifests); err != nil {
		return errors.Join(ended(ctx), err)
	}
	step("kube-controller-manager starts")
	defer start("kube-controller-manager", broken, controllerManager(f)).halt()
	step("kube-scheduler starts")
	defer start("kube-scheduler", broken, scheduler(f)).halt()
	if err := await(ctx, func(ctx context.Context) bool { return working(ctx, client) }); err != nil {
		return ended(ctx)
	}
	step("ready: KUBECONFIG=%s", f.path(kubeconfigFile))
	<-ctx.Done()
	step("stops")
	return ended(ctx)
}

// ended returns why a cluster ends: nil if it was told to.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// await asks until something is so.
func await(ctx context.Context, so func(ctx context.Context) bool) error {
	for !so(ctx) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}
