package generation

import (
	"slices"

	"github.com/spark-compile/spark-compile/runtime"
)

// Kinds of loops (runtime.Loop.Kind).
const (
	Driving    = "driving"
	Monitoring = "monitoring"
)

// Row is a generation of models.
type Row struct {
	Name     string // runtime.Loop.Rule of a program
	Releases string
	Kind     string // Driving or Monitoring

	Marks    []Mark     // driving models with any of these are of this generation, if of no earlier row
	Pictures []Pictures // names of inputs with pictures, as its releases called them
	Desires  []string   // names of the input with desires
	Told     []Vector
	Missed   string // what a step does after missed frames
	Slices   []Slice
	Commands Commands

	// Unclipped parsers do not clip exponents; Probabilities are desires for which the graph itself took the
	// softmax.
	Unclipped, Probabilities bool

	Face *Face // of Monitoring
	Seat *Seat // of Monitoring: the output of models without output_slices; nil: they have them
}

// Mark recognises a generation: everything that is set must hold. The zero value holds for every model.
type Mark struct {
	Input, Slice string // a name that the model has
	OneFile      bool   // vision and policy are one file
	FullRate     bool   // histories have a row for every step
}

// Model is what recognises a driving model: of all its files.
type Model struct {
	Inputs, Slices    []string
	OneFile, FullRate bool
}

// Of is the generation of a driving model.
func Of(m Model) *Row {
	for i := range rows {
		if rows[i].Kind == Driving && slices.ContainsFunc(rows[i].Marks, m.has) {
			return &rows[i]
		}
	}
	panic("the last generation takes every model")
}

func (m Model) has(k Mark) bool {
	return (k.Input == "" || slices.Contains(m.Inputs, k.Input)) &&
		(k.Slice == "" || slices.Contains(m.Slices, k.Slice)) &&
		(!k.OneFile || m.OneFile) && (!k.FullRate || m.FullRate)
}

// Named is the generation that a program's loop names; nil: there is none.
func Named(name string) *Row {
	if i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name }); i >= 0 {
		return &rows[i]
	}
	return nil
}

// All are the generations, in the order in which Of tries them.
func All() []Row { return slices.Clone(rows) }

// Pictures are the inputs with pictures of both cameras. A model that keeps earlier pictures itself has one input
// for both.
type Pictures struct {
	Road, Wide string
	Sampling   string // runtime.Nearest or Linear
}

// union collects names from all rows.
func union(of func(r *Row) []string) (names []string) {
	for i := range rows {
		for _, name := range of(&rows[i]) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// pairs are names from Pictures that a camera has for itself, or that both share.
func pairs(shared bool, name func(p Pictures) string) []string {
	return union(func(r *Row) (names []string) {
		for _, p := range r.Pictures {
			if (p.Road == p.Wide) == shared {
				names = append(names, name(p))
			}
		}
		return names
	})
}

// RoadInputs are the names of inputs with pictures of the road camera, WideInputs of the wide one, and
// SharedInputs of both, which the model keeps itself.
func RoadInputs() []string   { return pairs(false, func(p Pictures) string { return p.Road }) }
func WideInputs() []string   { return pairs(false, func(p Pictures) string { return p.Wide }) }
func SharedInputs() []string { return pairs(true, func(p Pictures) string { return p.Road }) }

// PictureInputs are all names of inputs of driving models with pictures.
func PictureInputs() []string { return slices.Concat(RoadInputs(), WideInputs(), SharedInputs()) }

// Sampling is how modeld samples pictures for models with an input of that name.
func Sampling(input string) string {
	for _, r := range rows {
		for _, p := range r.Pictures {
			if p.Road == input || p.Wide == input {
				return p.Sampling
			}
		}
	}
	return runtime.Nearest
}

// DesireInputs are the names of inputs with desires.
func DesireInputs() []string { return union(func(r *Row) []string { return r.Desires }) }

// Missed says what a step does after missed frames (runtime.Loop.Missed).
const (
	MissedSkips        = "skips"         // it moves pictures on and runs no model
	MissedMovesDesires = "moves desires" // likewise, and desires
	MissedRuns         = "runs"          // what it always does: models that keep their pictures
)

// Every is how many steps are between two rows of a model's history of that many rows.
func Every(rows int) int {
	if rows >= fullRows {
		return 1
	}
	return Group
}
