// Command edge measures the edge control plane and prints a Markdown report.
//
// Absolute numbers say more about the machine than about the product, so every
// section also measures something simpler in the same run and prints the ratio:
// the same HTTP stack without storage, an embedded NATS JetStream that syncs every
// message, the disk by itself, a target posted to directly, a fleet a hundred
// times smaller. Nothing here fails for being slow.
//
// What is measured runs in a process of its own: the product as it is shipped,
// and the references as children of this program. The load comes from this
// process and shares the cores with them, therefore the load generator writes
// prepared bytes to plain TCP connections instead of using net/http. "CPU/req" is
// what the measured process alone used, which other work on the machine disturbs
// less than it does the rates.
//
// It is run inside its own module (cd bench && go run ./edge), because it builds the
// product from the folder that go.mod names. It needs Linux, since it reads /proc,
// and talks over loopback only.
package main
