// Package fulltest says which of the long tests run, which make test leaves out: all of them with SPARK_FULL=1 (make test-full), one
// part of several with SPARK_FULL_PART=2/3, else none. Continuous integration runs the part that the commit's name chooses, so
// that over some commits all of them run.
package fulltest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
)

// Runs reports whether a piece of work is to be done. Its name, mostly that of a test, decides to which part it belongs.
func Runs(name string) bool {
	if All() {
		return true
	}
	part := os.Getenv("SPARK_FULL_PART")
	if part == "" {
		return false
	}
	k, n, err := parse(part)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint32(sum[:])%n == k-1
}

// All reports whether all of it runs. Draws of thousands of random models, and compilers of another machine under qemu, ask this instead: they are too long for a part, and
// fewer are drawn in any case.
func All() bool { return os.Getenv("SPARK_FULL") != "" }

// parse reads K/N, with K from 1 to N.
func parse(part string) (k, n uint32, err error) {
	var rest string
	if count, _ := fmt.Sscanf(part, "%d/%d%s", &k, &n, &rest); count != 2 || k < 1 || k > n {
		return 0, 0, fmt.Errorf("SPARK_FULL_PART=%s: want K/N, with K from 1 to N", part)
	}
	return k, n, nil
}
