package record

import (
	"context"
	"strings"

	"github.com/mainstay-infra/mainstay/kit/db"
)

const (
	// maxImageLog is how much of an image's log is kept, in bytes.
	maxImageLog = 1 << 20
	// maxLogPage is the most bytes that one page of a log has.
	maxLogPage = 256 << 10
)

// logPiece is a row of the log.
type logPiece struct {
	Begins int64  `db:"begins"`
	Ends   int64  `db:"ends"`
	Piece  string `db:"piece"`
}

// AppendImageLog adds whole lines to the log of an image, and forgets what exceeds its size.
func (s *Store) AppendImageLog(ctx context.Context, id, text string) error {
	return s.db.Update(ctx, func(tx *db.Tx) error {
		var ends int64
		if err := tx.Get(ctx, &ends, "SELECT COALESCE(MAX(ends), 0) FROM image_logs WHERE image_id = ?", id); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO image_logs (image_id, begins, ends, piece) VALUES (?, ?, ?, ?)",
			id, ends, ends+int64(len(text)), text); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM image_logs WHERE image_id = ? AND ends < ?", id, ends+int64(len(text))-maxImageLog)
		return err
	})
}

// ImageLog is a part of an image's log.
type ImageLog struct {
	Text         string
	Offset, Next int64
	More         bool // there is more already
}

// ReadImageLog returns a part of the log of an image, which begins at an offset, or later if that is not
// kept any more.
func (s *Store) ReadImageLog(ctx context.Context, id string, offset int64) (ImageLog, error) {
	out := ImageLog{Offset: offset, Next: offset}
	var pieces []logPiece
	const most = 64
	err := s.db.Select(ctx, &pieces, `SELECT begins, ends, piece FROM image_logs WHERE image_id = ? AND ends > ?
		ORDER BY begins LIMIT ?`, id, offset, most)
	if err != nil {
		return out, err
	}
	var text strings.Builder
	for k, p := range pieces {
		if k == 0 && p.Begins > offset {
			out.Offset, out.Next = p.Begins, p.Begins
		}
		piece := p.Piece[out.Next-p.Begins:]
		if room := maxLogPage - text.Len(); len(piece) > room {
			piece = piece[:strings.LastIndexByte(piece[:room], '\n')+1]
			out.More = true
		}
		text.WriteString(piece)
		out.Next += int64(len(piece))
		if out.More {
			break
		}
	}
	out.More = out.More || len(pieces) == most
	out.Text = text.String()
	return out, nil
}
