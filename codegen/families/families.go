// Package families lists the kernel families.
package families

import (
	"github.com/spark-compile/spark-compile/codegen/contraction"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/loop"
	"github.com/spark-compile/spark-compile/codegen/window"
)

// New are all families, whose choices memo remembers, unless it is nil.
func New(memo *kernel.Memo) *kernel.Families {
	return kernel.NewFamilies(memo, contraction.Family, window.Family, loop.Family)
}
