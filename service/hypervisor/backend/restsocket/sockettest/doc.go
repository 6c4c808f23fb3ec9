// Package sockettest tests backends of package restsocket where their programs cannot be
// had: against fakes that are programs, too, with the same command line, sockets, order of
// calls and end.
//
//	host.go     a test binary that is also the fakes, and a daemon that dies
//	guest.go    what a fake has in the place of a guest: a console, and the real agent
//	server.go   a fake's API, which can be made to misbehave
//	suite.go    what each backend must do
package sockettest
