package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

// kubeletCommand is how this program starts itself as the kubelet of the real node.
const kubeletCommand = "kubelet"

// kubelet runs the kubelet, and returns its exit code. It is a process of its own, since it wants the whole of one.
func kubelet(args []string) int {
	os.Args = append([]string{kubeletCommand}, args...)
	return cli.Run(app.NewKubeletCommand(context.Background()))
}
