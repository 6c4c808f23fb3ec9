package fleet_test

import (
	"net/http"
	"time"
)

// flood writes until nobody reads any more.
func flood(w http.ResponseWriter, r *http.Request) {
	chunk := make([]byte, 64<<10)
	for i := range chunk {
		chunk[i] = ' '
	}
	for r.Context().Err() == nil {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// drip writes a little now and then, for ever.
func drip(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := w.Write([]byte("[")); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}
