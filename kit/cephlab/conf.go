//go:build linux

package cephlab

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// Monitor returns the address of the monitor, as Ceph writes it.
func (l *Lab) Monitor() string { return fmt.Sprintf("[v2:127.0.0.1:%d/0]", l.MonPort) }

// conf returns the configuration file.
func (l *Lab) conf() string {
	replicas := min(l.OSDs, 2)
	store := fmt.Sprintf(`osd_objectstore = bluestore
# How long data rests after a loss of power: a fifth of the grace of heartbeats.
osd_pool_default_read_lease_ratio = 0.2
bluestore_block_create = true
bluestore_block_size = %d
bluestore_block_db_create = false
bluestore_block_wal_create = false
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
`, l.OSDBytes)
	if l.Memory {
		// Without a fast shutdown, it ends as others do.
		store = fmt.Sprintf("osd_objectstore = memstore\nosd_fast_shutdown = false\nmemstore_device_bytes = %d\n", l.OSDBytes)
	}
	return fmt.Sprintf(`[global]
fsid = %s
mon_host = %s
mon_initial_members = m
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
keyring = %[3]s/keyring
run_dir = %[3]s/run
admin_socket = %[3]s/run/$name.asok
pid_file =
log_file = %[3]s/log/$name.log
mon_cluster_log_file = %[3]s/log/cluster.log
crash_dir = %[3]s/run
osd_pool_default_size = %[4]d
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_warn_on_pool_no_redundancy = false
mon_max_pg_per_osd = 1000
mon_data_avail_warn = 1
mon_data_avail_crit = 0
auth_allow_insecure_global_id_reclaim = false
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
mon_tick_interval = 1
mgr_tick_period = 1
mgr_stats_period = 1
mgr_initial_modules =
mon_data = %[3]s/mon
mgr_data = %[3]s/mgr
osd_data = %[3]s/osd.$id
%[5]sosd_max_object_name_len = 256
osd_max_object_namespace_len = 64
osd_memory_target = 939524096
osd_memory_target_autotune = false
ms_async_op_threads = 1
osd_op_num_shards = 1
osd_op_num_threads_per_shard = 1
rados_mon_op_timeout = 30
rados_osd_op_timeout = 30
client_mount_timeout = 30

[client]
admin_socket =
rbd_mirror_pool_replayers_refresh_interval = 1
rbd_mirror_image_state_check_interval = 1

[client.rgw.r]
rgw_frontends = beast endpoint=127.0.0.1:%[6]d
rgw_enable_apis = s3, admin
rgw_run_sync_thread = false
rgw_thread_pool_size = 32
# Quotas hold from the next request on.
rgw_bucket_quota_ttl = 0
rgw_user_quota_bucket_sync_interval = 1
`, l.FSID, l.Monitor(), l.Dir, replicas, store, l.GatewayPort)
}

// keyring returns new keys for all daemons and clients, with their capabilities.
func (l *Lab) keyring() string {
	var b strings.Builder
	add := func(name string, caps ...string) {
		fmt.Fprintf(&b, "[%s]\n\tkey = %s\n", name, newKey())
		for i := 0; i < len(caps); i += 2 {
			fmt.Fprintf(&b, "\tcaps %s = \"%s\"\n", caps[i], strings.ReplaceAll(caps[i+1], `"`, `\"`))
		}
	}
	add("mon.", "mon", "allow *")
	add("client.admin", "mon", "allow *", "osd", "allow *", "mgr", "allow *", "mds", "allow *")
	// As the guide of the storage gateway names them.
	add("client."+User, "mon", `profile rbd, allow command "osd out", allow command "osd in", allow command "osd reweight"`,
		"mgr", "allow r", "osd", "profile rbd")
	add("client.rgw.r", "mon", "allow rw", "osd", "allow rwx", "mgr", "allow rw")
	add("mgr.x", "mon", "allow profile mgr", "osd", "allow *", "mds", "allow *")
	for i := range l.OSDIDs {
		add(fmt.Sprintf("osd.%d", i), "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *")
	}
	return b.String()
}

// newKey returns a new key as Ceph writes it: its kind (AES), when it was made, its length and its bytes.
func newKey() string {
	const kind, length = 1, 16
	key := binary.LittleEndian.AppendUint16(nil, kind)
	key = binary.LittleEndian.AppendUint32(key, uint32(time.Now().Unix())) //nolint:gosec // until 2106
	key = binary.LittleEndian.AppendUint32(key, 0)
	key = binary.LittleEndian.AppendUint16(key, length)
	secret := make([]byte, length)
	_, _ = rand.Read(secret) // it never fails
	return base64.StdEncoding.EncodeToString(append(key, secret...))
}
