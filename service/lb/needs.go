package lb

// Need is a requirement on the machine for balancing.
type Need struct {
	Name   string
	Met    bool
	Detail string // what was found
	Fix    string // how to get it
}
