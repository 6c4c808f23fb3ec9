// Package httpapi translates between the API contract (api/vm) and the rooms of the service.
//
// # Invariants
//
//   - It holds no rules about VMs. It identifies callers, checks what the contract cannot express
//     about requests, and translates.
//   - It knows neither SQL nor transactions.
//   - Callers who are not admins of everything never read a path of a host: in errors, in the
//     reasons that VMs and jobs carry, or in events (caller.Public).
//
// It imports the rooms whose methods it calls. None imports it.
package httpapi
