// Package e2e tests the mainstay program from outside: with real processes, databases and file
// systems, by killing processes and by filling disks.
//
// It is a separate module, so that dependencies of tests alone stay out of the product. Run it with
//
//	go test ./...
//
// MAINSTAY_KILLS or -kills sets how often the crash tests kill the server. MAINSTAY_BINARY names a
// program to test instead of building one. MAINSTAY_REQUIRE=all fails tests that would otherwise be
// skipped because an engine is missing.
package e2e
