// Package ota carries out over-the-air updates of the site's devices: it downloads
// an artifact and has the operator's hook program install it.
//
//	pending ─► downloading ─► downloaded ─► installing ─┬────────────────► verifying ─► succeeded
//	   │            │                           │       └─► rebooting ──────►│
//	   ├─► rejected │                           └───────────┬────────────────┘
//	   └─► already_installed                                ▼
//	                └─► failed ◄──────────────────── rolling_back ─► rolled_back
//
// Invariants:
//
//   - A phase is on disk before it is acted on, together with its report. After a
//     crash or a reboot the work continues with that phase. So the hook can be called
//     again for a phase that it had finished; hooks must be idempotent.
//   - Reports are told in their order and kept until they are answered.
//   - A device has one update. A newer request, or none, stops the older one: its
//     download ends, its hook is told to stop, and nothing more is reported of it.
//
// # The hook
//
// PROGRAM install|verify|rollback, with MAINSTAY_DEVICE, MAINSTAY_OTA_REQUEST,
// MAINSTAY_OTA_VERSION, MAINSTAY_OTA_FILE and MAINSTAY_OTA_SHA256 in its
// environment. Exit code 0 is success; 10 of install means that the device reboots
// and is to be verified afterwards; all else is a failure. The last line of its
// output becomes the message.
package ota
