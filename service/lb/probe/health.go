package probe

// health is the state of a backend, and the number of consecutive results that contradict it.
type health struct {
	known   bool
	healthy bool
	against int
}

func healthFrom(initial *bool) health {
	if initial == nil {
		return health{}
	}
	return health{known: true, healthy: *initial}
}

// after returns the health after one more result, and whether the state changed.
func (h health) after(ok bool, rise, fall int) (next health, changed bool) {
	if !h.known {
		return health{known: true, healthy: ok}, true
	}
	if ok == h.healthy {
		h.against = 0
		return h, false
	}
	h.against++
	needed := fall
	if ok {
		needed = rise
	}
	if h.against < needed {
		return h, false
	}
	return health{known: true, healthy: ok}, true
}
