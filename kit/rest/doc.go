// Package rest holds what the code generated from every contract shares: how a
// request's parameters and body become a value, how a value becomes an answer, how a
// client sends a request and reads what comes back. The templates in api/templates
// generate a few lines for each operation, which call this package.
//
// The server's side trusts that package contract has checked the request before; what
// does not fit all the same is a fault of kind Invalid. The client's side does not trust
// the server: answers are bounded, and an answer that is not as the contract says is an
// error.
package rest
