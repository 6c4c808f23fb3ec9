package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// listenKubelets opens a port for each fake node.
func listenKubelets(count int) (all []net.Listener, err error) {
	for range count {
		l, err := net.Listen("tcp", net.JoinHostPort(hostAddress, "0"))
		if err != nil {
			for _, l := range all {
				err = errors.Join(err, l.Close())
			}
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// serveKubelets answers what the API server asks the kubelets of the fake nodes, until ctx ends: the logs, which come
// from an annotation. Only callers with a certificate of the cluster's authority are answered.
func serveKubelets(ctx context.Context, f *folder, client kubernetes.Interface, listeners []net.Listener) error {
	pair, err := tls.LoadX509KeyPair(f.crt(serverPair), f.key(serverPair))
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(f.crt(authority))
	if err != nil {
		return err
	}
	callers := x509.NewCertPool()
	callers.AppendCertsFromPEM(pem)
	failed := make(chan error, len(listeners))
	var servers []*http.Server
	for i, l := range listeners {
		s := &http.Server{
			Handler: fakeKubelet{client, nodeName(i)}.handler(), ReadHeaderTimeout: 10 * time.Second,
			TLSConfig: &tls.Config{
				Certificates: []tls.Certificate{pair}, ClientCAs: callers, ClientAuth: tls.RequireAndVerifyClientCert,
				MinVersion: tls.VersionTLS12,
			},
		}
		servers = append(servers, s)
		go func() { failed <- s.ServeTLS(l, "", "") }()
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	for _, s := range servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

// fakeKubelet is what a fake node answers.
type fakeKubelet struct {
	client kubernetes.Interface
	node   string
}

func (k fakeKubelet) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "nothing runs on the fake node "+k.node, http.StatusNotImplemented)
	})
	return mux
}

// logs answers with what the annotation says. A pod that is asked for by "follow" has printed everything.
func (k fakeKubelet) logs(w http.ResponseWriter, r *http.Request) {
	pod, err := k.client.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pod"), metav1.GetOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	lines := slices.Collect(strings.Lines(pod.Annotations[logs]))
	var tail int
	if n, err := fmt.Sscan(r.URL.Query().Get("tailLines"), &tail); n == 1 && err == nil && tail >= 0 && tail < len(lines) {
		lines = lines[len(lines)-tail:]
	}
	_, _ = io.WriteString(w, strings.Join(lines, ""))
}
