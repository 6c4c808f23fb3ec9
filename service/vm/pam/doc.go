// Package pam asks the host's authentication stack (PAM) about its accounts: whether a password is
// right, and in which groups an account is.
//
//	wire.go          Request, Response and Account: what is said to the program, and its answers
//	client.go        Client: asks the program, behind a socket or as a child
//	server_linux.go  Server: answers on a socket, with a child for each request
//
// The stack is a C library, whose modules may crash, hang, leak and are not safe for threads. So
// they run in a program of their own, mainstay-pam, and there in a process for each request, which
// is killed when it takes too long. This package is plain Go. It reaches the program in two ways:
//
//   - Socket: a mainstay-pam that runs as root serves a Unix socket. The service itself needs no
//     privileges.
//   - Program: a service that runs as root starts mainstay-pam for each request and speaks to it over
//     a pipe, as on a single host.
//
// Both speak the same: a request and an answer, each a length of four bytes and that much JSON.
//
// # Invariants
//
//   - Sizes and times are bounded on both sides, and so is the number of requests in progress.
//   - The password is in no argument, environment, log or error. The buffers that hold it are
//     overwritten after use. Go may have copied them before; the process that asks the stack ends
//     after one request.
//   - Only peers with a configured user id are answered, and only about configured services.
//   - A service without a file of its own is refused. The stack would take the rules of the service
//     "other" for it, which may accept anybody.
//   - "No" is only what the stack itself has said. Everything else that goes wrong is Unavailable.
package pam
