package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/klog/v2"
)

// What a folder holds.
const (
	lockFile       = "lock"
	portFile       = "port" // of the API server
	logFile        = "log"  // of all components, of this run
	etcdFolder     = "etcd"
	etcdSocket     = "etcd.sock"
	etcdPeers      = "etcd-peers.sock"
	kubeconfigFile = "kubeconfig"
)

// folder is that of a cluster.
type folder struct {
	dir  string
	lock *os.File
	log  *os.File
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, name) }

// openFolder makes the folder of a cluster, or locks the one that there is.
func openFolder(dir string) (_ *folder, err error) {
	syscall.Umask(0o077) // also for what etcd makes
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chdir(dir); err != nil { // see etcdAddress
		return nil, err
	}
	f := &folder{dir: dir}
	if f.lock, err = os.OpenFile(f.path(lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.lock.Close()
		return nil, fmt.Errorf("another process uses the folder %s", dir)
	}
	if f.log, err = os.OpenFile(f.path(logFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err != nil {
		return nil, errors.Join(err, f.lock.Close())
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	klog.SetOutput(f.log)
	if err := f.makeCredentials(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// close unlocks the folder.
func (f *folder) close() error {
	klog.Flush()
	return errors.Join(f.log.Close(), f.lock.Close())
}

// listen opens the port of the API server: the same as before, if there was one.
func (f *folder) listen() (net.Listener, error) {
	port := "0"
	raw, err := os.ReadFile(f.path(portFile))
	switch {
	case err == nil:
		port = strings.TrimSpace(string(raw))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, fmt.Errorf("the port of the API server (%s): %w", f.path(portFile), err)
	}
	port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if err := f.write(portFile, []byte(port+"\n")); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// write replaces a file as a whole.
func (f *folder) write(name string, content []byte) error {
	beside := f.path(name) + ".new"
	if err := os.WriteFile(beside, content, 0o600); err != nil {
		return err
	}
	return os.Rename(beside, f.path(name))
}
