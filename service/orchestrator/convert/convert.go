package convert

import (
	"github.com/mainstay-infra/mainstay/kit/document"
)

// Owner says whose something is that a runtime has.
type Owner struct {
	Server   string // the id of the orchestrator
	Workload string // the uid of the workload: one that is made anew under the same name has another
}

// Labels of everything that an orchestrator makes.
const (
	LabelManager  = "app.kubernetes.io/managed-by"
	LabelName     = "app.kubernetes.io/name"
	LabelServer   = "mainstay.io/server"
	LabelWorkload = "mainstay.io/workload"
	LabelProject  = "mainstay.io/project"
	Manager       = "mainstay"
)

// Notes are what there is to say about a conversion.
type Notes struct {
	// Problems are what the runtime cannot do. There is a result only if there are none.
	Problems document.Problems
	// Warnings are what it does in another way than the document says.
	Warnings document.Problems
}

// part returns the name of a part of a workload.
func part(workload, name string) string { return workload + "--" + name }
