//go:build linux

package nexthop

import (
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/mainstay-infra/mainstay/kit/routine"
)

// kind is the subject of a notification. A change of a greater kind can imply changes of lesser
// kinds.
type kind uint8

const (
	ofNeighbours kind = iota
	ofRoutes
	ofLinks // or their addresses
)

// subscribe subscribes to changes of neighbours, routes, links and addresses.
func subscribe() (<-chan kind, func(), error) {
	done := make(chan struct{})
	stop := sync.OnceFunc(func() { close(done) })
	news := make(chan kind)
	tell := func(k kind) {
		select {
		case news <- k:
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
	forward(neighbours, func() { tell(ofNeighbours) })
	forward(routes, func() { tell(ofRoutes) })
	forward(links, func() { tell(ofLinks) })
	forward(addresses, func() { tell(ofLinks) })
	return news, stop, nil
}

// forward calls tell for each value, in its own goroutine, until the channel is closed.
func forward[T any](from <-chan T, tell func()) {
	routine.Go(nil, "netlink news", func() {
		for range from {
			tell()
		}
	})
}
