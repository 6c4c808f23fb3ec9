package output

import (
	"bytes"
	"encoding/json"
	"io"

	"go.yaml.in/yaml/v3"
)

// writeYAML writes JSON as YAML, with the same fields in the same order.
func writeYAML(w io.Writer, raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // keep all digits of large numbers
	node, err := yamlNode(d)
	if err != nil {
		return BadAnswer(err)
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(node); err != nil {
		return err
	}
	return e.Close()
}

// yamlNode reads one JSON value. JSON could be parsed as YAML directly, except for its surrogate
// pairs.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		if t == '{' {
			n = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		}
		for d.More() {
			// An object's keys are tokens too, each before its value.
			item, err := yamlNode(d)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
		_, err := d.Token()
		return n, err
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	default:
		var n yaml.Node
		return &n, n.Encode(t)
	}
}
