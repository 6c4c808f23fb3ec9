//go:build !linux

package lb

import (
	"context"

	"github.com/mainstay-infra/mainstay/kit/fault"
)

var errNotLinux = fault.New(fault.Unavailable, "balancing takes Linux: there is no XDP here")

// OpenPlane returns an error, since balancing needs Linux.
func OpenPlane(context.Context, PlaneOptions) (Plane, Hops, error) { return nil, nil, errNotLinux }

// Detach returns an error, since balancing needs Linux.
func Detach(Config) (iface string, found bool, err error) { return "", false, errNotLinux }
