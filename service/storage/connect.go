package storage

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/fault"
	"github.com/mainstay-infra/mainstay/service/storage/backup"
	"github.com/mainstay-infra/mainstay/service/storage/driver"
	"github.com/mainstay-infra/mainstay/service/storage/driver/inventory"
	"github.com/mainstay-infra/mainstay/service/storage/driver/kubernetes"
	"github.com/mainstay-infra/mainstay/service/storage/driver/rgw"
	"github.com/mainstay-infra/mainstay/service/storage/driver/zfs"
	"github.com/mainstay-infra/mainstay/service/storage/record"
)

// The types of backends that are on this host.
const (
	typeNFS = "nfs" // folders
	typeZFS = "zfs" // datasets
)

// cephCluster says how a Ceph cluster is reached.
type cephCluster struct {
	conf string // path of a ceph.conf
	user string // without "client."
}

// entryName matches the names of entries in the settings.
var entryName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)

// parseEntries reads a setting whose entries are NAME=VALUE, with the values that valid returns true for. form says
// what they are.
func parseEntries(key string, entries []string, form string, valid func(value string) bool) (map[string]string, error) {
	all := map[string]string{}
	for _, e := range entries {
		name, value, ok := strings.Cut(e, "=")
		if !ok || !entryName.MatchString(name) || !valid(value) {
			return nil, fault.InvalidField(key, "%q is not %s", e, form)
		}
		if all[name] != "" {
			return nil, fault.InvalidField(key, "there are two entries %s", name)
		}
		all[name] = value
	}
	return all, nil
}

// parsePaths reads a setting whose entries are NAME=PATH.
func parsePaths(key string, entries []string) (map[string]string, error) {
	return parseEntries(key, entries, "NAME=PATH with an absolute path", filepath.IsAbs)
}

// parseDatasets reads the setting zfs-datasets.
func parseDatasets(entries []string) (map[string]string, error) {
	return parseEntries("zfs-datasets", entries, "NAME=POOL/DATASET", zfs.CheckDataset)
}

// cephUser matches the names of Ceph's clients, without "client.".
var cephUser = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// splitCluster reads [USER@]PATH.
func splitCluster(value string) cephCluster {
	if user, conf, ok := strings.Cut(value, "@"); ok && !strings.Contains(user, "/") {
		return cephCluster{conf: conf, user: user}
	}
	return cephCluster{conf: value, user: "admin"}
}

// parseClusters reads the setting ceph-clusters.
func parseClusters(entries []string) (map[string]cephCluster, error) {
	const form = "NAME=[USER@]PATH with an absolute path"
	values, err := parseEntries("ceph-clusters", entries, form, func(value string) bool {
		c := splitCluster(value)
		return filepath.IsAbs(c.conf) && cephUser.MatchString(c.user)
	})
	all := map[string]cephCluster{}
	for name, value := range values {
		all[name] = splitCluster(value)
	}
	return all, err
}

// splitKubernetes reads [NAMESPACE@]PATH.
func splitKubernetes(value string) kubernetes.Config {
	if namespace, path, ok := strings.Cut(value, "@"); ok && !strings.Contains(namespace, "/") {
		return kubernetes.Config{Kubeconfig: path, Namespace: namespace}
	}
	return kubernetes.Config{Kubeconfig: value}
}

// parseKubernetes reads the setting kubernetes-clusters.
func parseKubernetes(entries []string) (map[string]kubernetes.Config, error) {
	const form = "NAME=[NAMESPACE@]PATH with an absolute path"
	values, err := parseEntries("kubernetes-clusters", entries, form, func(value string) bool {
		c := splitKubernetes(value)
		return filepath.IsAbs(c.Kubeconfig) && (c.Namespace != "" || !strings.HasPrefix(value, "@")) &&
			(c.Namespace == "" || kubernetes.CheckNamespace(c.Namespace))
	})
	all := map[string]kubernetes.Config{}
	for name, value := range values {
		all[name] = splitKubernetes(value)
	}
	return all, err
}

// openBackupKeys reads the keys of the setting backup-keys.
func openBackupKeys(log *slog.Logger, entries []string) (map[string]backup.Key, error) {
	files, err := parsePaths("backup-keys", entries)
	if err != nil {
		return nil, err
	}
	keys := map[string]backup.Key{}
	for name, path := range files {
		warnReadable(log, path)
		if keys[name], err = backup.ReadKey(path); err != nil {
			return nil, fault.InvalidField("backup-keys", "%s: %s", name, fault.From(err).Message)
		}
	}
	return keys, nil
}

// check returns a fault if the settings have no entry for a backend, or if there is no driver for its type.
func (s *Service) check(b record.Backend) error {
	var known bool
	var setting string
	switch b.Type {
	case typeNFS:
		_, known = s.folders[b.ConnectionRef]
		setting = "directories"
	case typeZFS:
		_, known = s.datasets[b.ConnectionRef]
		setting = "zfs-datasets"
	case record.TypeKubernetes:
		_, known = s.kubernetes[b.ConnectionRef]
		setting = "kubernetes-clusters"
	case record.TypeSAN, record.TypeCloudBlock:
		_, known = s.inventories[b.ConnectionRef]
		setting = "inventories"
	case record.TypeCeph:
		_, known = s.ceph[b.ConnectionRef]
		setting = "ceph-clusters"
	default:
		return fault.InvalidField("backend_type", "backends of the type %s are not supported yet", b.Type)
	}
	if !known {
		return fault.InvalidField("connection_ref", "the setting %s has no entry %s", setting, b.ConnectionRef)
	}
	return nil
}

// connect opens the storage system of a backend: the one that it was the first time.
func (s *Service) connect(ctx context.Context, b record.Backend) (driver.Driver, error) {
	if err := s.check(b); err != nil {
		return nil, err
	}
	c, err := s.store.ClusterOf(ctx, b.ID)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	switch b.Type {
	case record.TypeCeph:
		return s.openCeph(s.ceph[b.ConnectionRef], c.NativeID, s.gateways[b.ConnectionRef])
	case record.TypeSAN, record.TypeCloudBlock:
		return inventory.Open(s.inventories[b.ConnectionRef], c.NativeID)
	case record.TypeKubernetes:
		cfg := s.kubernetes[b.ConnectionRef]
		cfg.UID = c.NativeID
		return kubernetes.Open(ctx, cfg)
	case typeZFS:
		return zfs.Open(ctx, zfs.Config{Dataset: s.datasets[b.ConnectionRef], GUID: c.NativeID})
	}
	return openDirectory(s.folders[b.ConnectionRef], c.NativeID)
}

// openGateways reads the settings object-gateways and s3-buckets.
func (s *Service) openGateways() error {
	files, err := parsePaths("object-gateways", s.cfg.ObjectGateways)
	if err != nil {
		return err
	}
	s.gateways = map[string]*rgw.Gateway{}
	for name, path := range files {
		if _, ok := s.ceph[name]; !ok {
			return fault.InvalidField("object-gateways", "the setting ceph-clusters has no entry %s", name)
		}
		if s.gateways[name], err = openAccess(s.log, "object-gateways", path, rgw.OpenGateway); err != nil {
			return err
		}
	}
	if files, err = parsePaths("s3-buckets", s.cfg.S3Buckets); err != nil {
		return err
	}
	s.singles = map[string]driver.SingleBucket{}
	for name, path := range files {
		if s.singles[name], err = openAccess(s.log, "s3-buckets", path, rgw.OpenSingle); err != nil {
			return err
		}
	}
	return nil
}

// openAccess opens what a file of a setting tells of.
func openAccess[T any](
	log *slog.Logger, setting, path string, open func(rgw.Access) (T, error),
) (out T, err error) {
	a, err := rgw.ReadFile(setting, path)
	if err != nil {
		return out, err
	}
	warnReadable(log, path)
	if out, err = open(a); err != nil {
		return out, fault.InvalidField(setting, "%s: %s", path, fault.From(err).Message)
	}
	return out, nil
}

// warnReadable warns of a file with keys that others may read.
func warnReadable(log *slog.Logger, path string) {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("other users may read the keys in a file", "file", path, "help", "chmod 600 "+path)
	}
}
