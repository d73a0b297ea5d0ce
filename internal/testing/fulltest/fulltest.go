// Package fulltest says which of the long tests run, which make test leaves out: all with SPARK_FULL=1 (make test-full); tests that call Long, and
// those of fixed.txt whole, with SPARK_FULL=fixed (continuous integration); else none.
package fulltest

import (
	_ "embed"
	"os"
	"slices"
	"strings"
	"testing"
)

//go:embed fixed.txt
var list string

// fixed are the tests that continuous integration runs whole, the same for every commit.
var fixed = strings.Fields(list)

// Runs reports whether to do a piece of work, named after its test.
func Runs(name string) bool {
	return All() || os.Getenv("SPARK_FULL") == "fixed" && slices.Contains(fixed, name)
}

// Long skips a test that takes several seconds where only quick ones run.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("SPARK_FULL") == "" {
		t.Skip("long: .ci/run and make test-full run it")
	}
}

// All reports whether everything runs. Draws of thousands of random models, and other machines' compilers under qemu, ask this.
func All() bool {
	full := os.Getenv("SPARK_FULL")
	return full != "" && full != "fixed"
}
