// Package identity decides who may sign in to the VM management service, and what their tokens allow.
//
//	identity.go      Service and its Config
//	role.go          the roles, and how they come about
//	account.go       accounts as they are stored
//	login.go         Login: a password, and a code, for a token
//	attempt.go       limits on failed attempts, shared by replicas
//	gate.go          attempts for one username in turn, within a process
//	token.go         Check and Logout
//	current.go       the account behind a token as it is now
//	cache.go         what Check need not read again
//	secondfactor.go  time-based codes and recovery codes
//	admin.go         what admins do with accounts
//
// # Accounts
//
// An account is local or the host's. A local account has its password and role here. The passwords
// of the host's accounts are checked by its authentication stack (PAM), through package pam. They get
// a row here at their first login, or when an admin creates one in order to assign a role or a
// tenant. A local account hides an account of the host with the same name, also while local accounts
// may not sign in (Config.HostOnly).
//
// An account of the host is known by the host's spelling of its name. Otherwise a directory that
// ignores case would let a user around their second factor.
//
// # Roles
//
// viewer < user < admin. A local account has the role of its row. On the host, root and the members
// of wheel, sudo and adm are admins, and everybody else is a user. A role that an admin has assigned
// to an account of the host takes the place of that one, whether it is lower or higher; an assignment
// is always an explicit act, which the event tells, and nothing else raises a role. Being taken out
// of sudo does not end an assigned role. Removing the row of an account of the host forgets what was
// assigned, and the account may sign in again with the host's role. To shut it out, lock it on the
// host.
//
// The last admin without a tenant can be neither removed nor demoted. Accounts of the host count as
// they were when they were last seen, and only while the host's accounts may sign in.
//
// An admin with a tenant manages the accounts of that tenant; others do not exist for them. They
// neither create nor remove accounts of the host, nor end an assignment, since the account would
// then be in no tenant.
//
// # Tokens
//
// Tokens are JSON Web Tokens signed with HS256. Another secret ends all of them. Check reads the
// account behind a token again after half a minute:
//
//   - The lower of the token's role and the account's role counts.
//   - A token ends when its account is removed or expires on the host, when its tenant changes, and
//     when its password changes: at once in the process where that happened, within a minute in others.
//   - While the host cannot be asked, what it said last counts for five minutes. Then Check answers
//     Unavailable.
//
// A revoked token ends at once where it was revoked, and within two seconds in other processes.
//
// # Limits on failures
//
// Five failures for a username, and fifty in all, within five minutes. An attempt takes a place
// before the password is checked, so that attempts at once cannot exceed the limits, and gives it
// back when it succeeds. A success also clears the failures of its username, which still count among
// the fifty. The counters are rows, at most fifty, so that replicas share them; those older than five
// minutes are deleted by the next attempt. Codes of a second factor count like passwords.
//
//   - Whoever hangs up has not avoided the outcome: the attempt is finished without them.
//   - An attempt that could not be checked counts as a failure, unless the password was never handed
//     over (pam.ErrNotAsked). Otherwise a slow or crashing stack would tell a wrong password from a
//     right one without a count.
//   - A right password without the code that it takes is refused and not counted.
//   - Attempts for one username run in turn in a process. So a client that signs in several times at
//     once is not refused because of the places that it takes itself.
//
// An unknown username is answered like a wrong password, after the same work: that of a local account
// or, if the host's accounts may sign in, that of the host's stack. So the time of an answer may tell
// local usernames from others.
//
// # Invariants
//
//   - Passwords are stored as argon2id, recovery codes as hashes, and the secrets of second factors
//     sealed. None is logged.
//   - A code is good once, on all replicas together.
//   - Every change is one transaction with its event (Config.Record).
//   - Memory and tables are bounded: by the number of accounts, of tokens in use, and of revoked
//     tokens for each account.
package identity
