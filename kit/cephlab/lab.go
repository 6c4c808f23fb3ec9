// Package cephlab runs a throw-away Ceph on this machine, out of Debian's packages: a monitor, OSDs, and if wanted a
// manager and the object gateway (RGW), all in one folder and on 127.0.0.1. Tests (kit/cephtest) and
// `mainstay storage dev-ceph` are made of it.
//
//	lab.go       what a cluster is, and its folder
//	cluster.go   makes, starts and stops clusters
//	conf.go      the configuration and the keys of a cluster
//	daemon.go    programs that run to their end, and daemons
//	gateway.go   the object gateway
//	status.go    how a cluster is
//
// # Invariants
//
//   - Each step of Up is repeated safely: what takes more than one write is made beside its place and renamed. A
//     process that is killed in Up leaves a folder with which Up and Down go on.
//   - Which daemons run is read from the process table, never from a file, which may be outdated: a daemon is a process
//     with the program, the configuration and the name of one. So nothing else is ever ended.
//   - Nothing listens on other addresses than 127.0.0.1.
//   - Keys are in files of mode 0600, and in no arguments of programs, which all users of a machine can read.
//
// It is for trying and testing, not for data that anybody needs.
package cephlab

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

// User is the client of Ceph that has the capabilities which services need, and no more.
const User = "mainstay"

// Settings are what a cluster is made with. They do not change afterwards.
type Settings struct {
	Name     string `json:"name"`      // by which services know it
	OSDs     int    `json:"osds"`      // at least 1
	OSDBytes int64  `json:"osd_bytes"` // of each; room is taken as data is written
	Memory   bool   `json:"memory"`    // OSDs lose their data when they end
	Manager  bool   `json:"manager"`   // without one, a cluster does not tell how full it is
	Gateway  bool   `json:"gateway"`
	Pool     string `json:"pool"` // for images
}

// Lab is a cluster.
type Lab struct {
	Dir string `json:"-"` // absolute
	Settings
	FSID        string    `json:"fsid"`
	OSDIDs      []string  `json:"osd_ids"` // the UUIDs of the OSDs, in the order of their numbers
	MonPort     int       `json:"mon_port"`
	GatewayPort int       `json:"gateway_port"`
	CreatedAt   time.Time `json:"created_at"`

	children []*exec.Cmd // daemons that this process has started
}

const (
	recordFile  = "lab.json"
	lockFile    = "lock"
	readyFile   = "ready"
	confFile    = "ceph.conf"
	keyringFile = "keyring"
	accessFile  = "rgw.json"
)

// Open returns the cluster that is in a folder, or a fault of kind NotFound.
func Open(dir string) (*Lab, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.NotFound, err, "there is no cluster in %s", dir)
	}
	if err != nil {
		return nil, err
	}
	l := &Lab{}
	if err := json.Unmarshal(raw, l); err != nil || uuid.Validate(l.FSID) != nil || len(l.OSDIDs) != l.OSDs {
		return nil, fault.Wrap(fault.Invalid, err, "%s in %s is damaged", recordFile, dir)
	}
	l.Dir = dir
	return l, nil
}

func (l *Lab) path(name string) string { return filepath.Join(l.Dir, name) }

// Conf returns the path of the configuration file. Its keyring has the keys of the clients admin and User.
func (l *Lab) Conf() string { return l.path(confFile) }

// AccessFile returns the path of the file that says how the object gateway is reached, and by which keys.
func (l *Lab) AccessFile() string { return l.path(accessFile) }

// Clusters returns the entry of the setting ceph-clusters of the storage gateway for the cluster.
func (l *Lab) Clusters() string { return l.Name + "=" + User + "@" + l.Conf() }

// Gateways returns the entry of the setting object-gateways.
func (l *Lab) Gateways() string { return l.Name + "=" + l.AccessFile() }

// Ready reports whether the cluster was complete once. One that is not becomes so by Up.
func (l *Lab) Ready() bool {
	_, err := os.Stat(l.path(readyFile))
	return err == nil
}
