// Package vm holds the rules of virtual machines, as plain functions on plain values:
// the states of a VM and the moves between them.
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
// A failed VM can be started again. What could not be made is removed, and was never a
// VM. A VM in any state can be deleted; deleting has no way back.
//
// # Invariants
//
//   - Next is the only place that knows which move is legal. Whoever moves a VM asks it
//     first, and stores the answer before anything is done about it.
//   - creating, starting, stopping and deleting are under way: a daemon that finds a VM
//     in one of them when it starts has to finish the work, or to undo it.
package vm
