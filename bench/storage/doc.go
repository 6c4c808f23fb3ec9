// Command storage compares the storage gateway with what it stands on, in the same run on the same machine: with
// go-ceph, with the command rbd, with a pipe of rbd, zstd and uploads in parts, and with itself while a cluster hangs.
//
// It starts Ceph clusters of its own. It needs root, the programs in bin (make build), the packages that
// "mainstay storage dev-ceph up" names, and zstd.
package main
