// Command fakezfs is zfs or zpool, by the name that it is started under: see package zfstest.
package main

import (
	"os"
	"path/filepath"

	"github.com/mainstay-infra/mainstay/service/storage/driver/zfs/zfstest"
)

func main() { os.Exit(zfstest.Main(filepath.Dir(os.Args[0]), filepath.Base(os.Args[0]), os.Args[1:])) }
