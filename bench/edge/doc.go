// Command edge measures the edge control plane and prints a Markdown report.
//
// Absolute numbers depend more on the machine than on the product. So every section also measures
// something simpler in the same run and prints the ratio: the same HTTP stack without storage, an
// embedded NATS JetStream that syncs every message, the disk alone, direct posts to a target, or a
// fleet of a hundredth of the size. No result counts as a failure for being slow.
//
// Section 8 fills a database of each engine with SQL, and measures every list and search through the
// product. Section 9 compares ingest with an older program, in turns.
//
// Each measured server runs in its own process: the product as it is shipped, and the references as
// children of this program. This process generates the load and shares the cores with them. To use
// little of them, the load generator writes prepared bytes to plain TCP connections instead of
// using net/http. "CPU/req" is the processor time of the measured process alone. Other work on the
// machine affects it less than the rates.
//
// Run it in its own module (cd bench && go run ./edge), because it builds the product from the
// folder that go.mod names. It needs Linux, since it reads /proc, and uses only loopback
// connections.
package main
