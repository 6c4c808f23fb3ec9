package output

import (
	"errors"
	"fmt"
)

// ErrAnswer is in the chain of every error about an answer that is not what the API promises, such as
// that of another server.
var ErrAnswer = errors.New("the answer is not as the API's contract says")

// BadAnswer returns such an error.
func BadAnswer(err error) error { return fmt.Errorf("%w: %w", ErrAnswer, err) }
