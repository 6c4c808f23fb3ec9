//go:build linux

package nexthop

import (
	"sync"

	"github.com/vishvananda/netlink"
)

// subscribe watches what ways depend on. The channel tells true when routes may have
// changed, and false when only neighbours have.
func subscribe() (<-chan bool, func(), error) {
	done := make(chan struct{})
	stop := sync.OnceFunc(func() { close(done) })
	news := make(chan bool)
	tell := func(routes bool) {
		select {
		case news <- routes:
		case <-done:
		}
	}
	neighbours := make(chan netlink.NeighUpdate)
	routes := make(chan netlink.RouteUpdate)
	links := make(chan netlink.LinkUpdate)
	addresses := make(chan netlink.AddrUpdate)
	for _, start := range []func() error{
		func() error { return netlink.NeighSubscribe(neighbours, done) },
		func() error { return netlink.RouteSubscribe(routes, done) },
		func() error { return netlink.LinkSubscribe(links, done) },
		func() error { return netlink.AddrSubscribe(addresses, done) },
	} {
		if err := start(); err != nil {
			stop()
			return nil, nil, err
		}
	}
	go forward(neighbours, func() { tell(false) })
	go forward(routes, func() { tell(true) })
	go forward(links, func() { tell(true) })
	go forward(addresses, func() { tell(true) })
	return news, stop, nil
}

// forward calls tell for each value until the channel is closed.
func forward[T any](from <-chan T, tell func()) {
	for range from {
		tell()
	}
}
