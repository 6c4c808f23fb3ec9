package contract

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
)

// Contract is a parsed and checked OpenAPI document.
type Contract struct {
	doc        *openapi3.T
	raw        []byte
	basePath   string
	operations []*Operation
	byPattern  map[string]*Operation
}

// Operation is one method on one path.
type Operation struct {
	// ID is the document's operationId.
	ID string
	// Method and Path as in the document; the path holds {placeholders} and no
	// base path.
	Method, Path string
	// Pattern is what http.ServeMux matches: method, base path and path.
	Pattern string
	// Access is the class of callers admitted (x-access).
	Access string
	// Audit is the action of the audit entry that a success leaves (x-audit):
	// empty for operations that change nothing, "none" for changes that are
	// recorded elsewhere.
	Audit string
	// HandlerValidates tells that the handler checks the request itself
	// (x-validation: handler), which the hottest operations do for speed.
	HandlerValidates bool
	// MaxBody is the most bytes that a body may have (x-body); 0 is what is usual in the
	// service.
	MaxBody int64
	// Time is how long the operation may take (x-time).
	Time Time
	// Credential names a special credential that the operation takes (x-credential),
	// empty if it takes the usual ones only. The words are the service's.
	Credential string
	// Rate is the class of the operation's rate limit (x-rate), empty for the usual one. The
	// words are the service's.
	Rate string
	// Statuses are the documented status codes.
	Statuses []int

	route      *routers.Route
	pathParams []string
	takesJSON  bool
	bodyKeys   *keys    // of the JSON body
	otherMedia []string // the types of bodies that are taken beside JSON, such as files
}

// Time is how long an operation may take.
type Time string

// The times.
const (
	Usual  Time = ""       // as long as every request may
	Long   Time = "long"   // as long as it takes: it ends by limits of its own
	Stream Time = "stream" // until the client leaves; it is not counted among requests in flight
)

// Load parses document and checks that every operation has an id and an access
// class out of classes, that everything but GET says what it audits, and that no
// extension (x-…) of an operation is one that nobody reads.
// basePath is the path of the document's server, for example "/api/v1". Paths with a
// server of their own, such as /healthz, are for readers only: the service answers
// them by itself.
func Load(document []byte, basePath string, classes []string) (*Contract, error) {
	defineFormats()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, fmt.Errorf("parse OpenAPI document: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	c := &Contract{doc: doc, raw: document, basePath: basePath, byPattern: map[string]*Operation{}}
	var problems []error
	for path, item := range doc.Paths.Map() {
		if len(item.Servers) > 0 {
			continue
		}
		for method, o := range item.Operations() {
			op, err := newOperation(doc, basePath, path, item, method, o)
			if err == nil && !slices.Contains(classes, op.Access) {
				err = fmt.Errorf("x-access is %q, not one of %s", op.Access, strings.Join(classes, ", "))
			}
			if err == nil && method != http.MethodGet && op.Audit == "" {
				err = errors.New("x-audit is missing on an operation that changes something")
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s %s: %w", method, path, err))
				continue
			}
			c.operations = append(c.operations, op)
			c.byPattern[op.Pattern] = op
		}
	}
	slices.SortFunc(c.operations, func(a, b *Operation) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
	return c, errors.Join(problems...)
}

func newOperation(
	doc *openapi3.T, basePath, path string, item *openapi3.PathItem, method string, o *openapi3.Operation,
) (*Operation, error) {
	op := &Operation{
		ID: o.OperationID, Method: method, Path: path, Pattern: method + " " + basePath + path,
		Access: extension(o, "x-access"), Audit: extension(o, "x-audit"),
		Time: Time(extension(o, "x-time")), Credential: extension(o, "x-credential"), Rate: extension(o, "x-rate"),
		route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: o},
	}
	if op.ID == "" {
		return nil, errors.New("operationId is missing")
	}
	if err := op.readExtensions(o.Extensions); err != nil {
		return nil, err
	}
	for _, params := range []openapi3.Parameters{item.Parameters, o.Parameters} {
		for _, p := range params {
			if p.Value.In == openapi3.ParameterInPath {
				op.pathParams = append(op.pathParams, p.Value.Name)
			}
		}
	}
	if o.RequestBody != nil {
		if media := o.RequestBody.Value.Content.Get("application/json"); media != nil {
			op.takesJSON, op.bodyKeys = true, keysOf(media.Schema, map[*openapi3.Schema]*keys{})
		}
		for media := range o.RequestBody.Value.Content {
			if media != "application/json" {
				op.otherMedia = append(op.otherMedia, media)
			}
		}
	}
	for status := range o.Responses.Map() {
		var n int
		if _, err := fmt.Sscanf(status, "%d", &n); err != nil {
			return nil, fmt.Errorf("response %q is not a status code", status)
		}
		op.Statuses = append(op.Statuses, n)
	}
	slices.Sort(op.Statuses)
	return op, nil
}

// readExtensions reads what is not a word, and refuses what is not known.
func (op *Operation) readExtensions(extensions map[string]any) error {
	for name, value := range extensions {
		switch name {
		case "x-access", "x-audit", "x-credential", "x-rate":
			if _, ok := value.(string); !ok {
				return fmt.Errorf("%s is %v, not a word", name, value)
			}
		case "x-validation":
			if op.HandlerValidates = value == "handler"; !op.HandlerValidates {
				return fmt.Errorf("x-validation is %v, not handler", value)
			}
		case "x-time":
			if op.Time != Long && op.Time != Stream {
				return fmt.Errorf("x-time is %v, not %s or %s", value, Long, Stream)
			}
		case "x-body":
			size, ok := value.(float64)
			if op.MaxBody = int64(size); !ok || op.MaxBody < 1 {
				return fmt.Errorf("x-body is %v, not a number of bytes", value)
			}
		default:
			return fmt.Errorf("there is no extension %s", name)
		}
	}
	return nil
}

func extension(o *openapi3.Operation, name string) string {
	s, _ := o.Extensions[name].(string)
	return s
}

// Operations are all operations, ordered by path and method.
func (c *Contract) Operations() []*Operation { return c.operations }

// BasePath is the path of the document's server, for example "/api/v1".
func (c *Contract) BasePath() string { return c.basePath }

// Operation finds an operation by the pattern under which it is registered.
func (c *Contract) Operation(pattern string) (*Operation, bool) {
	op, ok := c.byPattern[pattern]
	return op, ok
}
