package audit

import "context"

// RecordDenied records the attempts that were only counted, as Run does every minute.
func (l *Log) RecordDenied(ctx context.Context) error { return l.recordDenied(ctx) }
