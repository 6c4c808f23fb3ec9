// Package session keeps people signed in to a service's web console.
//
//	session.go    Manager: opens, recognizes and ends sessions
//	cookie.go     the cookie that holds a session
//	ended.go      Ended: the sessions that were signed out, in memory or in a table
//	body.go       the bodies of requests
//	http.go       the requests of consoles, under /console/
//	workspace.go  Workspace: the other services of an installation, for the console's switcher
//	ring.go       Ring: a workspace within one process, where one sign-in opens every console
//	document.go   Document: a workspace that an operator writes down
//
// A session holds the credentials that a person signed in with: a bearer token or, after single
// sign-on, an identity. Each request that belongs to a session is served as if it carried them. So
// a session can do what its credentials can, and it ends when they do.
//
// The session is in a cookie that only the service can read: encrypted with its secret key, and
// invisible to scripts (HttpOnly). Tabs and reloads share it. The service stores only which
// sessions were signed out.
//
// A service may ask for a code after a password (Config.SecondFactor). No session and no cookie exists
// between the two steps: the page sends the password again, with the code.
//
// # Invariants
//
//   - A cookie counts only together with the header X-Mainstay-Console. Pages of other origins cannot
//     send this header without permission, which is never given. Browsers do not keep cookies of
//     different ports apart, and consider all ports of a host to be one site, so SameSite alone would
//     not do.
//   - A request that carries an Authorization header uses only that.
//   - A signed-out session stays signed out, on every replica that shares the table.
//   - A session lasts at most Life, and no longer than its credentials. Requests that last, such as
//     streams, end with it.
//   - A ticket opens one session of one service, once, and that ends no later than the session that
//     the ticket comes from.
//   - A request never decides which address the service itself contacts.
//   - The answer to a sign-in contains no credentials.
//
// Cookies are also sent to other programs that listen on other ports of the same host. Whoever runs
// a program there that is not trusted must give the service a host name of its own.
//
// It imports auth, db, document, fault, httpserve, routine, telemetry and ticket.
package session
