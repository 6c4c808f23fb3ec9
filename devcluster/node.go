package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	remote "k8s.io/cri-client/pkg"
)

const (
	// realNode is the name of the node whose containers run.
	realNode = "real-0"
	// nodeFolder holds what it needs: containerd, the kubelet, its pods' volumes.
	nodeFolder = "node"
	nodePair   = "node" // certificate of its kubelet, to the API server and to its callers
)

// nodePrograms are what a real node needs of the host, with the Debian packages that have them.
var nodePrograms = map[string]string{
	"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2", "busybox": "busybox-static",
	cniFolder + "/bridge": "containernetworking-plugins",
}

const cniFolder = "/usr/lib/cni"

// node is the real node of a cluster: containerd and a kubelet, as processes of their own.
type node struct {
	*folder
	// Clusters in other folders have others of these.
	name    string // of its bridge and of its control group
	network string // of its pods
	address string // in the network: that of the bridge, on which its kubelet listens
}

// newNode checks that the host can have a node, and prepares its folder.
func newNode(f *folder) (*node, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("--kubelet takes root")
	}
	for program, of := range nodePrograms {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("--kubelet: %s is missing; install the package %s", program, of)
		}
	}
	hash := sha256.Sum256([]byte(f.dir))
	prefix := fmt.Sprintf("10.%d.%d.", 192+hash[0]%32, hash[1])
	n := &node{folder: f, name: "dc-" + hex.EncodeToString(hash[:4]), network: prefix + "0/24", address: prefix + "1"}
	if most := 107 - len("/"+nodeFolder+"/containerd.sock"); len(f.dir) > most {
		return nil, fmt.Errorf("--kubelet: the path of the folder has more than %d bytes", most)
	}
	for _, dir := range []string{"cni", "volumes"} {
		if err := os.MkdirAll(n.in(dir), 0o700); err != nil {
			return nil, err
		}
	}
	return n, errors.Join(n.configure(), n.addBridge(), addGroup(n.name))
}

// in returns a path in the folder of the node.
func (n *node) in(name string) string { return n.path(filepath.Join(nodeFolder, name)) }

// socket is the address of containerd.
func (n *node) socket() string { return n.in("containerd.sock") }

// configure writes the files that the programs read.
func (n *node) configure() error {
	values := map[string]string{
		"Folder": n.path(nodeFolder), "CNI": cniFolder, "Name": n.name, "Network": n.network, "Address": n.address,
		"Authority": n.crt(authority), "Certificate": n.crt(nodePair), "Key": n.key(nodePair), "Pause": pauseImage,
	}
	for name, text := range map[string]string{
		"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig, "cni/10-bridge.conflist": cniConfig,
	} {
		var out strings.Builder
		if err := template.Must(template.New(name).Parse(text)).Execute(&out, values); err != nil {
			return err
		}
		if err := n.write(filepath.Join(nodeFolder, name), []byte(out.String())); err != nil {
			return err
		}
	}
	raw, err := os.ReadFile(n.path(kubeconfigFile))
	if err != nil {
		return err
	}
	c, err := clientcmd.Load(raw)
	if err != nil {
		return err
	}
	user := api.NewAuthInfo()
	user.ClientCertificate, user.ClientKey = n.crt(nodePair), n.key(nodePair)
	for name := range c.AuthInfos {
		c.AuthInfos[name] = user
	}
	if raw, err = clientcmd.Write(*c); err != nil {
		return err
	}
	return n.write(filepath.Join(nodeFolder, kubeconfigFile), raw)
}

const containerdConfig = `version = 2
root = "{{.Folder}}/containerd"
state = "{{.Folder}}/run"
[grpc]
  address = "{{.Folder}}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Pause}}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.CNI}}"
    conf_dir = "{{.Folder}}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`

const cniConfig = `{"cniVersion": "0.4.0", "name": "devcluster", "plugins": [
	{"type": "bridge", "bridge": "{{.Name}}", "isGateway": true, "hairpinMode": true, "ipam": {
		"type": "host-local", "dataDir": "{{.Folder}}/addresses",
		"ranges": [[{"subnet": "{{.Network}}", "gateway": "{{.Address}}"}]], "routes": [{"dst": "0.0.0.0/0"}]
	}},
	{"type": "portmap", "capabilities": {"portMappings": true}}
]}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {{.Address}}
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: {{.Authority}}}}
authorization: {mode: Webhook}
tlsCertFile: {{.Certificate}}
tlsPrivateKeyFile: {{.Key}}
containerRuntimeEndpoint: unix://{{.Folder}}/containerd.sock
podLogsDir: {{.Folder}}/logs
volumePluginDir: {{.Folder}}/plugins
cgroupDriver: cgroupfs
cgroupRoot: /{{.Name}}
failCgroupV1: false
enforceNodeAllocatable: []
failSwapOn: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi}
makeIPTablesUtilChains: false
`

// addBridge makes the bridge of the pods, unless the host has it.
func (n *node) addBridge() error {
	if _, err := net.InterfaceByName(n.name); err != nil {
		if err := execute("ip", "link", "add", n.name, "type", "bridge"); err != nil {
			return err
		}
	}
	return errors.Join(
		execute("ip", "addr", "replace", n.address+"/24", "dev", n.name), execute("ip", "link", "set", n.name, "up"),
	)
}

// execute runs a program to its end.
func execute(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// process runs a program until ctx ends, or it does. It ends with this process, however that ends.
func (n *node) process(name string, args ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		// The kernel sends the signal when the thread ends that has started the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		log, err := os.OpenFile(n.in(filepath.Base(args[0])+".log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer func() { _ = log.Close() }()
		cmd := exec.CommandContext(ctx, name, args[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = stopWithin
		if err := cmd.Run(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w; see %s", err, log.Name())
		}
		return nil
	}
}

// start starts containerd and the kubelet, and returns when the node is ready. stop ends all.
func (n *node) start(ctx context.Context, client kubernetes.Interface, broken chan<- error) (stop func(), err error) {
	parts := []*part{start("containerd", broken, n.process("containerd", "containerd", "--config", n.in("containerd.toml")))}
	stop = func() {
		for i := len(parts) - 1; i >= 0; i-- {
			if parts[i].name == "containerd" {
				if err := n.removePods(); err != nil {
					logProblem("pods of the node", err)
				}
			}
			parts[i].halt()
		}
		if err := errors.Join(
			execute("ip", "link", "delete", n.name), unmountBelow(n.path(nodeFolder)), removeGroup(n.name),
		); err != nil {
			logProblem("what the node leaves", err)
		}
	}
	if err := await(ctx, func(ctx context.Context) bool { return n.ctr("version") == nil }); err != nil {
		return stop, err
	}
	if err := n.importImages(); err != nil {
		return stop, err
	}
	self, err := os.Executable()
	if err != nil {
		return stop, err
	}
	parts = append(parts, start("kubelet", broken, n.process(
		self, kubeletCommand, kubeletCommand, "--config="+n.in("kubelet.yaml"), "--kubeconfig="+n.in(kubeconfigFile),
		"--root-dir="+n.in("kubelet"), "--cert-dir="+n.in("pki"), "--hostname-override="+realNode, "--node-ip="+n.address,
		"--node-labels="+corev1.LabelTopologyZone+"=local",
	)))
	return stop, await(ctx, func(ctx context.Context) bool { return nodeReady(ctx, client) })
}

// ctr runs containerd's client.
func (n *node) ctr(args ...string) error {
	return execute("ctr", append([]string{"--address", n.socket(), "--namespace", "k8s.io"}, args...)...)
}

func nodeReady(ctx context.Context, client kubernetes.Interface) bool {
	node, err := client.CoreV1().Nodes().Get(ctx, realNode, metav1.GetOptions{})
	if err != nil {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue && time.Since(c.LastHeartbeatTime.Time) < time.Minute
		}
	}
	return false
}

// removePods ends the containers of the node, and gives their addresses back. Their pods start again with the node.
func (n *node) removePods() error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*stopWithin)
	defer cancel()
	cri, err := remote.NewRemoteRuntimeService("unix://"+n.socket(), stopWithin, noop.NewTracerProvider(), nil)
	if err != nil {
		return err
	}
	pods, err := cri.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	var ended sync.WaitGroup
	problems := make([]error, len(pods))
	for i, p := range pods {
		ended.Go(func() { problems[i] = errors.Join(cri.StopPodSandbox(ctx, p.Id), cri.RemovePodSandbox(ctx, p.Id)) })
	}
	ended.Wait()
	return errors.Join(problems...)
}
