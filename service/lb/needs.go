package lb

// Need is something that a machine must have to balance.
type Need struct {
	Name   string
	Met    bool
	Detail string // what was found
	Fix    string // how to get it
}
