// Package e2e tests the mainstay program from outside: real processes, real
// databases, real file systems, killed and filled up in earnest.
//
// It is a module of its own, so that what only tests need stays out of the
// product's dependencies. Run it with
//
//	go test ./...
//
// MAINSTAY_KILLS or -kills sets how often the crash tests kill the server,
// MAINSTAY_BINARY names a program to test instead of building one, and
// MAINSTAY_REQUIRE=all fails the tests that would be skipped for want of an engine.
package e2e
