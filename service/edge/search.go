package edge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mainstay-infra/mainstay/kit/db"
	"github.com/mainstay-infra/mainstay/kit/list"
	"github.com/mainstay-infra/mainstay/kit/text"
	"github.com/mainstay-infra/mainstay/service/edge/topicmap"
)

// maxSearchText limits the column search, in bytes. PostgreSQL has at most 2,704 bytes in an entry of
// an index, and some of them hold a name and an ID besides.
const maxSearchText = 1024

// searchText returns what a search for an object looks at, in lower case. Words are apart from each
// other, so that no text is found across two of them. It is never empty, and leaves out the labels
// for which there is no room.
func searchText(labels map[string]string, words ...string) string {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	all := strings.ToLower(strings.Join(words, "\n"))
	if len(all) <= maxSearchText {
		return all
	}
	end := maxSearchText
	for !utf8.RuneStart(all[end]) {
		end--
	}
	return all[:end]
}

// search reads a page of a table with the column search.
type search struct {
	table, id string // the table, and its primary key
	sorts     list.Sorts
	scope     db.Scope
	text      string // empty: everything
	sort      string // as list.Sorts.Order takes it
	after     string // as list.Order.After takes it
	limit     int
}

// read selects the rows into dest, a pointer to a slice, and returns their order.
func (s search) read(ctx context.Context, q db.Querier, dest any) (list.Order, error) {
	order, err := s.sorts.Order(s.sort)
	if err != nil {
		return list.Order{}, err
	}
	if err := text.Check("q", s.text); err != nil {
		return list.Order{}, err
	}
	where, args := s.scope.SQL()
	after, more, err := order.After(s.after)
	if err != nil {
		return list.Order{}, err
	}
	where, args = where+" AND "+after, append(args, more...)
	if s.text != "" {
		// The column is in lower case, as Go has it, so that both engines find the same.
		like := strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(strings.ToLower(s.text))
		where, args = where+` AND search LIKE ? ESCAPE '\'`, append(args, "%"+like+"%")
	}
	// The inner query reads an index alone, and only the rows that were found are read whole. CROSS
	// JOIN has SQLite begin with it.
	return order, q.Select(
		ctx, dest, fmt.Sprintf(
			"SELECT whole.* FROM (SELECT %[1]s AS found FROM %[2]s WHERE %[3]s %[4]s LIMIT ?) page "+
				"CROSS JOIN %[2]s whole WHERE whole.%[1]s = page.found %[5]s",
			s.id, s.table, where, order.SQL(""), order.SQL("whole."),
		), append(args, s.limit)...)
}

// describePause is the rest between two steps of describeOld, as a multiple of the time that one
// took, so that others write meanwhile.
const describePause = 1

// describeOld prepares what a version without searches stored for them, as far as the migration left
// it. Until it is done, searches of events read more and find the same, and searches of sites and
// devices find only those that are described.
func (s *Service) describeOld(ctx context.Context) {
	begin, steps := time.Now(), 0
	for _, work := range []struct {
		what string
		step func(context.Context, *db.DB) (more bool, err error)
	}{{"sites and devices", describeRows}, {"topics of events", topicmap.Fill}} {
		for more := true; more && ctx.Err() == nil; {
			start := time.Now()
			var err error
			more, err = work.step(ctx, s.db)
			pause := describePause * time.Since(start)
			if err != nil && ctx.Err() == nil {
				s.log.Warn("what older versions stored could not be prepared for searches; trying again",
					"what", work.what, "error", err)
				more, pause = true, 10*time.Second
			}
			if steps++; more && steps%100 == 1 {
				s.log.Info("preparing what older versions stored for searches", "what", work.what,
					"for", time.Since(begin).Round(time.Second))
			}
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				timer.Stop()
			case <-timer.C:
			}
		}
	}
	if steps > 2 && ctx.Err() == nil {
		s.log.Info("what older versions stored is prepared for searches", "took", time.Since(begin).Round(time.Second))
	}
}

// describedRows is how many rows describeRows writes in a transaction.
const describedRows = 500

// describeRows writes the column search of rows that the migration left without it. It reports whether
// there are more.
func describeRows(ctx context.Context, d *db.DB) (more bool, err error) {
	err = d.Update(ctx, func(tx *db.Tx) error {
		var sites []Site
		if err := tx.Select(
			ctx, &sites, "SELECT * FROM sites WHERE search = '' ORDER BY id LIMIT ?"+tx.ForUpdateSkipLocked(),
			describedRows,
		); err != nil {
			return err
		}
		for _, site := range sites {
			if _, err := tx.Exec(
				ctx, "UPDATE sites SET search = ? WHERE id = ?", site.searchText(), site.ID,
			); err != nil {
				return err
			}
		}
		var devices []Device
		if err := tx.Select(
			ctx, &devices,
			"SELECT * FROM devices WHERE search = '' ORDER BY device_id LIMIT ?"+tx.ForUpdateSkipLocked(),
			describedRows-len(sites),
		); err != nil {
			return err
		}
		for _, device := range devices {
			if _, err := tx.Exec(
				ctx, "UPDATE devices SET search = ? WHERE device_id = ?", device.searchText(), device.DeviceID,
			); err != nil {
				return err
			}
		}
		more = len(sites)+len(devices) == describedRows
		return nil
	})
	return more && err == nil, err
}
