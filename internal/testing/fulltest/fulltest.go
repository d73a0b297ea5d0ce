// Package fulltest decides which long tests run. make test runs none. With SPARK_FULL=fixed, as in continuous integration, those that call
// Long run, and those that fixed.txt names run at full size. With SPARK_FULL=1 (make test-full) all run at full size.
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

// fixed are the tests that continuous integration runs at full size, the same for every commit.
var fixed = strings.Fields(list)

// Runs reports whether a test, or a part of one that the name says, runs at full size.
func Runs(name string) bool {
	return All() || os.Getenv("SPARK_FULL") == "fixed" && slices.Contains(fixed, name)
}

// Long skips a test that takes several seconds where only quick ones run.
func Long(t testing.TB) {
	t.Helper()
	if !Some() {
		t.Skip("long: .ci/run and make test-full run it")
	}
}

// Some reports whether long tests run, be it not at full size.
func Some() bool { return os.Getenv("SPARK_FULL") != "" }

// All reports whether everything runs. Draws of thousands of random models, and other machines' compilers under qemu, ask this.
func All() bool {
	full := os.Getenv("SPARK_FULL")
	return full != "" && full != "fixed"
}
