// Package rest is the runtime that the code generated from all contracts shares. It decodes a
// request's parameters and body into a value, encodes a value as a response, and sends a client's
// request and reads the response. The templates in api/templates generate a few lines for each
// operation, which call this package.
//
// The server side relies on package contract to have validated the request; anything that still
// does not fit is a fault of kind Invalid. The client side does not trust the server: responses are
// limited in size, and a response that does not match the contract is an error.
package rest
