package foreignkernels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
)

// TestOthersKernelsGiveRightAnswers runs what other compilers wrote: in the interpreter with all checks on, in the interpreter's portable
// part alone, and in native code.
func TestOthersKernelsGiveRightAnswers(t *testing.T) {
	for _, c := range Cases() {
		t.Run(c.Name(), func(t *testing.T) {
			for name, opts := range map[string]emu.Options{"checked": {Check: true}, "specification": {Engine: emu.Specification}, "native": {}} {
				require.NoError(t, c.Run(opts, nil), name)
			}
		})
	}
}
