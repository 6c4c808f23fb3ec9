//go:build ceph

// Command mainstay-ceph talks to one Ceph cluster on behalf of Mainstay's storage gateway, which starts
// it and speaks to it over its standard input and output. It needs cgo, librados and librbd, hence the
// build tag: it is built where a C compiler and their headers are, with
//
//	CGO_ENABLED=1 go build -tags 'ceph pacific' ./cmd/mainstay-ceph
//
// It takes no arguments and ends with its input. Package service/storage/driver/ceph/wire describes
// what is said.
package main

import (
	"fmt"
	"os"

	"github.com/mainstay-infra/mainstay/service/storage/driver/ceph/cephd"
)

// version is set by the linker.
var version = "dev"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "version" {
		fmt.Fprintln(os.Stdout, version)
		return
	}
	if err := cephd.Run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mainstay-ceph:", err)
		os.Exit(1)
	}
}
