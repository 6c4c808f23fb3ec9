// Package auth holds the building blocks of identity: tokens and signed sessions, passwords and
// second factors, roles, limits on failed logins, sealed values and the OpenID Connect login.
// Services own their tables of users and tokens; this package stores no accounts.
//
// Invariants:
//
//   - A token is stored only as its hash, a password only as an argon2id string.
//     A Sealer is for values that must be read back.
//   - Secrets are compared in constant time.
//   - All outside input (a header, a cookie, a stored string) is limited in size
//     before any work is done for it. Errors about it are a *fault.Error that does
//     not repeat it.
//   - Memory is bounded: concurrent password hashes, throttled keys and used
//     login states all have a limit.
package auth
