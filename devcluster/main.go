// Program devcluster runs a Kubernetes control plane in one process: etcd, kube-apiserver, kube-controller-manager
// and kube-scheduler, each the real one. It is for tests and for trying things out. Its nodes are fake: pods are
// scheduled to them and go through their states, and no container runs. On request, there is a real node, too.
//
//	devcluster up --dir DIR [--nodes N] [--gpus N] [--kubelet] [--kubevirt] [--crds FILE-OR-DIR]... [--until-eof]
//	devcluster kubectl ...
//
//	main.go         reads the command line, and starts and stops the parts in order
//	folder.go       the folder of a cluster: its lock, its port
//	credentials.go  certificates, keys and the kubeconfig
//	components.go   the four components
//	crds.go         CustomResourceDefinitions that a cluster has from the beginning
//	nodes.go        the fake nodes
//	pods.go         moves the pods on them through their states
//	node.go         a real node, with containerd and a kubelet
//	kubelet.go      the kubelet
//	provisioner.go  the volumes of its pods
//	host.go         what a real node leaves in the host
//	images.go       the images that a real node has
//	podstatus.go    the states of pods, and the annotations that choose among them
//	vms.go          KubeVirt's VMs: their instances, and the pods of those
//	vmstatus.go     the states of VMs and instances
//	crds/           KubeVirt's CRDs
//	kubectl.go      kubectl, with which people look at the cluster
//	kubelets.go     what the API server asks kubelets: logs
//
// # Invariants
//
//   - All is in one folder, which is locked while the process runs. A process that was killed leaves a folder that the
//     next one starts from.
//   - The kubeconfig, and with it the port, stay the same as long as the folder does, so clients need not know that the
//     process was started again.
//   - It listens on 127.0.0.1 only, and on every port it asks for a certificate. etcd listens on a socket in the folder,
//     which only the user who runs it can enter.
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
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "kubectl":
			kubectl(os.Args[2:])
			return
		case kubeletCommand:
			os.Exit(kubelet(os.Args[2:]))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}

const usage = `usage: devcluster up --dir DIR [flags]
       devcluster kubectl ...

The first command runs a Kubernetes cluster until it is interrupted. The second one is kubectl.

Examples:
  devcluster up --dir /tmp/cluster
  devcluster up --dir /tmp/cluster --nodes 10 --gpus 8 --kubevirt
  sudo devcluster up --dir /tmp/cluster --nodes 0 --kubelet
  KUBECONFIG=/tmp/cluster/kubeconfig devcluster kubectl get nodes

Flags of devcluster up:
`

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("devcluster up", flag.ContinueOnError)
	flags.SetOutput(os.Stdout)
	flags.Usage = func() {
		fmt.Print(usage)
		flags.PrintDefaults()
	}
	dir := flags.String("dir", "", "folder of the cluster; created if it does not exist")
	nodes := flags.Int("nodes", 3, "fake nodes, on which pods go through their states and nothing runs")
	gpus := flags.Int("gpus", 0, "GPUs that each fake node has")
	joins := flags.Bool("kubelet", false, "have a real node, too, with this host's containerd (root)")
	kubevirt := flags.Bool("kubevirt", false, "have KubeVirt's VMs, which go through their states on the fake nodes")
	var crds []string
	flags.Func("crds", "YAML file, or folder of such files, with CRDs to install; may be repeated",
		func(path string) error {
			crds = append(crds, path)
			return nil
		})
	untilEOF := flags.Bool("until-eof", false, "stop when standard input ends, as it does when the caller is killed")
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		flags.Usage()
		return nil
	}
	if args[0] != "up" {
		return fmt.Errorf("%q is not a command; see devcluster --help", args[0])
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not a flag; see devcluster --help", flags.Arg(0))
	case *dir == "":
		return errors.New("--dir: the folder of the cluster is missing")
	case *nodes < 0 || *nodes > maxNodes:
		return fmt.Errorf("--nodes: from 0 to %d", maxNodes)
	case *gpus < 0 || *gpus > maxGPUs:
		return fmt.Errorf("--gpus: from 0 to %d", maxGPUs)
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
	manifests, err := readCRDs(crds)
	if err != nil {
		return err
	}
	if *kubevirt {
		own, err := readOwnCRDs()
		if err != nil {
			return err
		}
		manifests = append(manifests, own...)
	}
	return up(ctx, path, manifests, fakeNodes{count: *nodes, gpus: *gpus, tainted: *joins}, *kubevirt)
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
func up(
	ctx context.Context, dir string, manifests []*unstructured.Unstructured, nodes fakeNodes, kubevirt bool,
) (err error) {
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
	client, err := dynamic.NewForConfig(keeperConfig(config))
	if err != nil {
		return err
	}
	var machine *node
	if nodes.tainted {
		if machine, err = newNode(f); err != nil {
			return err
		}
	}
	keepers, err := kubernetes.NewForConfig(keeperConfig(config))
	if err != nil {
		return err
	}
	if nodes.kubelets, err = listenKubelets(nodes.count); err != nil {
		return err
	}
	defer func() {
		for _, l := range nodes.kubelets {
			_ = l.Close() // they may have been closed
		}
	}()

	broken := make(chan error, 10) // one for each part
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
	defer start("kube-apiserver", broken, apiserver(f, listener)).halt()
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
	if nodes.count > 0 {
		step("%d fake nodes join", nodes.count)
		if err := nodes.register(ctx, keepers); err != nil {
			return errors.Join(ended(ctx), err)
		}
		defer start("the fake nodes", broken, func(ctx context.Context) error { return nodes.keep(ctx, keepers) }).halt()
		defer start("the fake kubelets", broken, func(ctx context.Context) error {
			return serveKubelets(ctx, f, keepers, nodes.kubelets)
		}).halt()
		defer start("the keeper of pods", broken, func(ctx context.Context) error { return keepPods(ctx, keepers, nodes) }).halt()
	}
	if kubevirt {
		defer start("the keeper of VMs", broken, func(ctx context.Context) error { return keepVMs(ctx, keepers, client) }).halt()
	}
	step("kube-controller-manager starts")
	defer start("kube-controller-manager", broken, controllerManager(f)).halt()
	step("kube-scheduler starts")
	defer start("kube-scheduler", broken, scheduler(f)).halt()
	if err := await(ctx, func(ctx context.Context) bool { return working(ctx, client) }); err != nil {
		return ended(ctx)
	}
	if machine != nil {
		step("%s joins, with containerd and a kubelet", realNode)
		stop, err := machine.start(ctx, keepers, broken)
		defer stop()
		if err != nil {
			return errors.Join(ended(ctx), err)
		}
		defer start("the provisioner", broken, func(ctx context.Context) error { return machine.provision(ctx, keepers) }).halt()
	}
	step("ready: KUBECONFIG=%s", f.path(kubeconfigFile))
	<-ctx.Done()
	step("stops")
	return ended(ctx)
}

// keeperConfig returns the configuration of the keepers' client, which must keep up with thousands of pods.
func keeperConfig(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = 500, 1000
	return c
}

// logProblem logs an error after which the work goes on.
func logProblem(what string, err error) { klog.Errorf("devcluster: %s: %v", what, err) }

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
