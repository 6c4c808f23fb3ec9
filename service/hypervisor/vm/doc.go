// Package vm defines the states of a VM and the moves between them, as pure functions.
//
// # States
//
//	creating ──► stopped ──► starting ──► running ◄──► paused
//	   │            ▲  ▲         │            │           │
//	   │            │  │         └─────┬──────┴───────────┘
//	   │            │  └── stopping ◄──┤ asked to stop
//	   ▼            └──────────────────┤ ended by itself
//	deleting     failed ◄──────────────┘ ended badly, or never came up
//
// A failed VM can be started again. A VM that could not be created is removed and never counts as a
// VM. A VM in any state can be deleted; deletion cannot be undone.
//
// # Invariants
//
//   - Only Next knows which moves are legal. Call it and store its result before acting on a move.
//   - creating, starting, stopping and deleting are transitional: a daemon that finds a VM in one
//     of them on start must finish the work or undo it.
package vm
