package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllerapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controlleroptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// etcdAddress is a socket in the folder of the cluster, which is the working directory: paths of sockets must be short.
const etcdAddress = "unix://" + etcdSocket

// startEtcd starts etcd, and returns when it answers.
func startEtcd(ctx context.Context, f *folder) (*embed.Etcd, error) {
	c := embed.NewConfig()
	c.Dir = f.path(etcdFolder)
	c.LogLevel, c.LogOutputs = "error", []string{f.path(logFile)}
	c.UnsafeNoFsync = true
	c.EnableGRPCGateway = false
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Host: etcdSocket}}
	c.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: etcdPeers}}
	// What it tells other members, which it does not have, must have a port.
	nowhere := []url.URL{{Scheme: "http", Host: "localhost:1"}}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = nowhere, nowhere
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	etcd.Close()
	return nil, fmt.Errorf("etcd: %w", err)
}

// parse gives options the values of their flags. The commands of the components would do so too, but they end the
// process, and each wants to be the only one in it.
func parse(component string, sets cliflag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet(component, pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all.Parse(args)
}

// apiserver returns what runs the API server.
func apiserver(f *folder, listener net.Listener) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o := apiserveroptions.NewServerRunOptions()
		if err := parse("kube-apiserver", o.Flags(), []string{
			"--etcd-servers=" + etcdAddress,
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
			"--tls-cert-file=" + f.crt(serverPair), "--tls-private-key-file=" + f.key(serverPair),
			"--client-ca-file=" + f.crt(authority), "--anonymous-auth=false", "--authorization-mode=Node,RBAC",
			"--kubelet-client-certificate=" + f.crt(adminPair), "--kubelet-client-key=" + f.key(adminPair),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + f.path(pkiFolder+"/"+accountKey),
			"--service-account-signing-key-file=" + f.path(pkiFolder+"/"+accountKey),
			"--service-cluster-ip-range=" + serviceNetwork,
		}); err != nil {
			return err
		}
		o.SecureServing.Listener = listener
		if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
			return err
		}
		completed, err := o.Complete(ctx)
		if err != nil {
			return err
		}
		if errs := completed.Validate(); len(errs) > 0 {
			return errors.Join(errs...)
		}
		return apiserverapp.Run(ctx, completed)
	}
}

// clientFlags are those of components that call the API server, serve nothing, and are the only ones of their kind.
func clientFlags(f *folder) []string {
	path := f.path(kubeconfigFile)
	return []string{
		"--kubeconfig=" + path, "--authentication-kubeconfig=" + path, "--authorization-kubeconfig=" + path,
		"--secure-port=0", "--leader-elect=false",
	}
}

// fast lets a component make changes for thousands of pods in seconds.
var fast = []string{"--kube-api-qps=500", "--kube-api-burst=1000"}

// controllerManager returns what runs the controllers, but for those that need a cloud or the network of nodes.
func controllerManager(f *folder) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o, err := controlleroptions.NewKubeControllerManagerOptions()
		if err != nil {
			return err
		}
		known, off, aliases := controllerapp.KnownControllers(), controllerapp.ControllersDisabledByDefault(),
			controllerapp.ControllerAliases()
		sets := o.Flags(known, off, aliases)
		o.ParsedFlags = &sets
		if err := parse("kube-controller-manager", sets, append(append(clientFlags(f), fast...),
			"--service-account-private-key-file="+f.path(pkiFolder+"/"+accountKey), "--root-ca-file="+f.crt(authority),
			"--use-service-account-credentials=true", "--resource-quota-sync-period=10s",
			"--controllers=*,-node-ipam-controller,-node-route-controller,-service-lb-controller,"+
				"-cloud-node-lifecycle-controller",
		)); err != nil {
			return err
		}
		c, err := o.Config(ctx, known, off, aliases)
		if err != nil {
			return err
		}
		return controllerapp.Run(ctx, c.Complete())
	}
}

// scheduler returns what runs the scheduler.
func scheduler(f *folder) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		o := scheduleroptions.NewOptions()
		if err := parse("kube-scheduler", *o.Flags, append(clientFlags(f), fast...)); err != nil {
			return err
		}
		c, s, err := schedulerapp.Setup(ctx, o)
		if err != nil {
			return err
		}
		return schedulerapp.Run(ctx, c, s)
	}
}

// ready reports whether the API server says that it is.
func ready(ctx context.Context, config *rest.Config) bool {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(r)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// working reports whether the controllers have made the account that pods have unless they name another one.
func working(ctx context.Context, client dynamic.Interface) bool {
	accounts := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"})
	_, err := accounts.Namespace("default").Get(ctx, "default", metav1.GetOptions{})
	return err == nil
}
