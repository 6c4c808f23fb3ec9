package netpolicy

import (
	"encoding/json"
	"slices"
)

// Operators of requirements.
const (
	opIn           = "In"
	opNotIn        = "NotIn"
	opExists       = "Exists"
	opDoesNotExist = "DoesNotExist"
)

// Selector selects sets of labels that meet all its requirements. Without any, it selects all.
type Selector struct {
	Labels       map[string]string `json:"labels,omitempty"` // that must have these values
	Requirements []Requirement     `json:"requirements,omitempty"`
}

// Requirement is one about a label.
type Requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// Selects reports whether a set of labels meets all requirements.
func (s *Selector) Selects(labels map[string]string) bool {
	for key, value := range s.Labels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	for _, r := range s.Requirements {
		value, has := labels[r.Key]
		met := false
		switch r.Operator {
		case opIn:
			met = has && slices.Contains(r.Values, value)
		case opNotIn:
			met = !has || !slices.Contains(r.Values, value)
		case opExists:
			met = has
		case opDoesNotExist:
			met = !has
		}
		if !met {
			return false
		}
	}
	return true
}

// key identifies a selector among others.
func (s *Selector) key() string {
	text, err := json.Marshal(s) // of a map, sorted by key
	if err != nil {
		panic(err) // it holds texts only
	}
	return string(text)
}
