//go:build !linux

package storage

import (
	"context"
	"errors"
)

var errCephNeedsLinux = errors.New("a Ceph cluster runs on Linux only")

func cephUp(context.Context, *call, string, newCluster) error { return errCephNeedsLinux }

func cephDown(context.Context, *call, string, bool, bool) error { return errCephNeedsLinux }

func cephStatus(context.Context, *call, string) error { return errCephNeedsLinux }
