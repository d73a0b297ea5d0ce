// Package arm64 tests code for arm64 on other machines: with the GNU assembler, and under qemu's user emulation.
package arm64

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Need skips a test without a program of a Debian package.
func Need(t testing.TB, program, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("no %s on this machine: Debian has it in %s", program, pkg)
	}
}

// Command runs a program that must succeed, and returns what it prints.
func Command(t testing.TB, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// Assemble returns the instructions that the GNU assembler makes of a text.
func Assemble(t testing.TB, text string) (words []uint32) {
	t.Helper()
	Need(t, "aarch64-linux-gnu-as", "binutils-aarch64-linux-gnu")
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(path("text.s"), []byte(text), 0o644))
	Command(t, nil, "aarch64-linux-gnu-as", "-o", path("text.o"), path("text.s"))
	Command(t, nil, "aarch64-linux-gnu-objcopy", "-O", "binary", "-j", ".text", path("text.o"), path("text.bin"))
	raw, err := os.ReadFile(path("text.bin"))
	require.NoError(t, err)
	for i := 0; i < len(raw); i += 4 {
		words = append(words, binary.LittleEndian.Uint32(raw[i:]))
	}
	return words
}

// BuildTests builds the tests of the package in the working directory, and returns the program.
func BuildTests(t testing.TB) string {
	t.Helper()
	Need(t, "qemu-aarch64", "qemu-user")
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command on this machine to build tests for arm64")
	}
	bin := filepath.Join(t.TempDir(), "arm64.test")
	Command(t, []string{"GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0"}, "go", "test", "-c", "-o", bin, ".")
	return bin
}
