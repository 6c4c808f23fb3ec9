// Package ota performs over-the-air updates of the site's devices. It downloads an artifact and
// runs the operator's hook program to install it.
//
//	pending ─► downloading ─► downloaded ─► installing ─┬────────────────► verifying ─► succeeded
//	   │            │                           │       └─► rebooting ──────►│
//	   ├─► rejected │                           └───────────┬────────────────┘
//	   └─► already_installed                                ▼
//	                └─► failed ◄──────────────────── rolling_back ─► rolled_back
//
// Invariants:
//
//   - A phase is stored together with its report before its work begins. After a crash or reboot,
//     the update resumes with that phase. So the hook may be called again for a phase that it had
//     completed; hooks must be idempotent.
//   - Reports are sent in order and kept until the control plane has responded.
//   - A device has at most one update. A newer request, or its withdrawal, stops the current one:
//     the download is cancelled, the hook is told to stop, and no more reports of it are sent.
//
// # The hook
//
// PROGRAM install|verify|rollback, with MAINSTAY_DEVICE, MAINSTAY_OTA_REQUEST,
// MAINSTAY_OTA_VERSION, MAINSTAY_OTA_FILE and MAINSTAY_OTA_SHA256 in its environment. Exit code 0
// means success. Exit code 10 of install means that the device reboots and must be verified
// afterwards. Any other exit code is a failure. The last line of the output becomes the message.
package ota
