package spec

import (
	"strconv"

	"github.com/spf13/cobra"
)

// DiskLimits are the flags that limit what a VM does with a disk.
type DiskLimits struct{ IOPS, BytesPerSecond int64 }

// Add adds the flags to a command.
func (l *DiskLimits) Add(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&l.IOPS, "iops", 0, "most reads and writes a second; 0: no limit")
	cmd.Flags().Int64Var(&l.BytesPerSecond, "bytes-per-second", 0,
		"most bytes a second, of reads and writes together; 0: no limit")
}

// Limit formats a limit for a table. It is empty if there is none.
func Limit(limit int64) string {
	if limit == 0 {
		return ""
	}
	return strconv.FormatInt(limit, 10)
}
