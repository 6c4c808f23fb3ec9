package kube

import (
	"cmp"
	"context"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// Defaults of a Config.
const (
	DefaultTimeout = 15 * time.Second
	DefaultQPS     = 50
)

// Config says how an API server is reached.
type Config struct {
	Kubeconfig string // path; empty: as a pod of the cluster, by its service account
	Context    string // of the kubeconfig; empty: its current one
	UserAgent  string // by which the cluster's audit log knows the program, and field manager of what it applies
	Timeout    time.Duration
	QPS        float32 // requests per second on average; twice as many at once
}

// Client calls one API server. It is safe for concurrent use.
type Client struct {
	rest      *rest.RESTClient
	manager   string
	timeout   time.Duration
	namespace string
}

// Open reads the kubeconfig. It calls nobody.
func Open(cfg Config) (*Client, error) {
	config, namespace, err := load(&cfg)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the kubeconfig cannot be used")
	}
	config.UserAgent = cfg.UserAgent
	config.QPS = cmp.Or(cfg.QPS, DefaultQPS)
	config.Burst = 2 * int(config.QPS)
	config.WarningHandler = rest.NoWarnings{}
	// The only object that is decoded here is the status in which the API server says why it refuses.
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the kubeconfig cannot be used")
	}
	return &Client{
		rest: client, manager: cfg.UserAgent, timeout: cmp.Or(cfg.Timeout, DefaultTimeout), namespace: namespace,
	}, nil
}

func load(cfg *Config) (config *rest.Config, namespace string, err error) {
	if cfg.Kubeconfig == "" {
		config, err = rest.InClusterConfig()
		return config, metav1.NamespaceDefault, err
	}
	from := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: cfg.Context},
	)
	if namespace, _, err = from.Namespace(); err != nil {
		return nil, "", err
	}
	config, err = from.ClientConfig()
	return config, namespace, err
}

// Namespace returns the one that the kubeconfig's context names, or else "default".
func (c *Client) Namespace() string { return c.namespace }

// Close closes connections that are not in use.
func (c *Client) Close() { c.rest.Client.CloseIdleConnections() }

var errSlow = fault.New(fault.Unavailable, "the API server of the cluster has not answered in time")

// quiet keeps client-go from writing to standard error what it also returns.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// do sends a request and returns the answer.
func (c *Client) do(ctx context.Context, r *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(quiet(ctx), c.timeout, errSlow)
	defer cancel()
	result := r.Do(ctx)
	if err := result.Error(); err != nil { // unlike that of Raw, it has the status of the API server
		return nil, translate(ctx, err)
	}
	return result.Raw()
}
