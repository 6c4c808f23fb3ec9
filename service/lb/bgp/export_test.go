package bgp

import "time"

// MaxRoutes is how many routes of a family a peer may announce.
const MaxRoutes = maxRoutes

// PardonAfter sets how long a peer that announced too many routes is left alone.
func (s *Speaker) PardonAfter(d time.Duration) { s.pardonAfter = d }
