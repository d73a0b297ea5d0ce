//go:build amd64

package blas

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/arm64"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/golden"
)

// TestNEON_PassesTheTests runs the other tests of this package as an arm64 program.
func TestNEON_PassesTheTests(t *testing.T) {
	fulltest.Long(t)
	bin := arm64.BuildTests(t)
	for _, debug := range []string{"", "cpu.all=off"} {
		log := arm64.Command(t, []string{"GODEBUG=" + debug}, "qemu-aarch64", bin, "-test.v")
		require.Contains(t, log, "--- PASS: TestDotsAddInAscendingOrder")
	}
}

// listing assembles a file, and returns the assembler's listing.
func listing(t *testing.T, arch, file string) string {
	t.Helper()
	root := strings.TrimSpace(arm64.Command(t, nil, "go", "env", "GOROOT"))
	return arm64.Command(t, []string{"GOARCH=" + arch}, "go", "tool", "asm", "-S", "-p", "blas",
		"-I", filepath.Join(root, "pkg", "include"), "-I", ".", "-o", filepath.Join(t.TempDir(), "blas.o"), file)
}

// TestNEON_EncodesAsTheGNUAssembler compares the encodings of neon_arm64.h with what the GNU assembler makes of their
// comments.
func TestNEON_EncodesAsTheGNUAssembler(t *testing.T) {
	raw, err := os.ReadFile("neon_arm64.h")
	require.NoError(t, err)
	ours, theirs := "#include \"neon_arm64.h\"\nTEXT ·f(SB), 4, $0-0\n", ""
	rows := regexp.MustCompile(`(?m)^#define (\w+)\(([a-z, ]+)\) .* // (.*)$`).FindAllStringSubmatch(string(raw), -1)
	require.Equal(t, strings.Count(string(raw), "#define"), len(rows))
	for _, row := range rows {
		for _, r := range [][3]int{{0, 0, 0}, {1, 2, 4}, {16, 8, 31}, {31, 30, 29}} {
			numbers := strings.NewReplacer("m", strconv.Itoa(r[0]), "n", strconv.Itoa(r[1]), "d", strconv.Itoa(r[2]))
			ours += fmt.Sprintf("\t%s(%s)\n", row[1], numbers.Replace(row[2]))
			theirs += regexp.MustCompile(`[vs][MND]\b`).ReplaceAllStringFunc(row[3], func(v string) string {
				return v[:1] + numbers.Replace(strings.ToLower(v[1:]))
			}) + "\n"
		}
	}
	file := filepath.Join(t.TempDir(), "ours.s")
	require.NoError(t, os.WriteFile(file, []byte(ours), 0o644))
	text := arm64.Assemble(t, theirs)
	words := regexp.MustCompile(`WORD\t\$(\d+)`).FindAllStringSubmatch(listing(t, "arm64", file), -1)
	lines := strings.Split(theirs, "\n")
	require.Len(t, words, len(text))
	for i, w := range words {
		require.Equal(t, fmt.Sprintf("%08x", text[i]), hex(t, w[1]), lines[i])
	}
}

func hex(t *testing.T, decimal string) string {
	t.Helper()
	n, err := strconv.ParseUint(decimal, 10, 32)
	require.NoError(t, err)
	return fmt.Sprintf("%08x", n)
}

// kernels are the elements of an iteration of a kernel's innermost loop, for matrices and windows multiply-accumulates.
// On amd64 it is the loop of 256 bits; at counts the innermost loops before it.
var kernels = []struct {
	name, file string
	elements   int
	at         int
}{
	{"tile", "tile", 32, 0},
	{"tile32", "tile", 64, 0},
	{"tile32at", "tile", 64, 0},
	{"windows", "windows", 32, 1},
	{"axpy", "vectors", 16, 0},
	{"positive", "vectors", 16, 0},
	{"magnitude", "vectors", 16, 0},
	{"requantise", "vectors", 8, 0},
	{"requantise2", "vectors", 8, 0},
	{"squares", "sums", 8, 0},
	{"columns", "sums", 8, 0},
	{"columnDifferences", "sums", 8, 0},
}

// loops are the instructions of a function's innermost loops.
func loops(t *testing.T, listing, function string) (sizes []int) {
	t.Helper()
	_, text, found := strings.Cut(listing, "blas."+function+" STEXT")
	require.True(t, found, function)
	text, _, _ = strings.Cut(text, " STEXT")
	var at []int // of the instructions
	last := -1   // where the last loop begins
	line := regexp.MustCompile(`(?m)^\t0x\w+ (\d+) \(.*?\)\t([A-Z0-9.]+)(?:\t(\d+)$)?`)
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		if m[2] == "TEXT" || m[2] == "FUNCDATA" || m[2] == "PCDATA" {
			continue
		}
		pc, _ := strconv.Atoi(m[1])
		at = append(at, pc)
		if target, err := strconv.Atoi(m[3]); err == nil && target <= pc && target > last {
			sizes = append(sizes, len(at)-slices.Index(at, target))
			last = target
		}
	}
	return sizes
}

// TestNEON_InstructionsPerElement counts instructions of inner loops: times under emulation would say nothing. Vectors
// are half as wide as AVX2's.
func TestNEON_InstructionsPerElement(t *testing.T) {
	const most = 2.2
	listings := map[string]string{}
	text := "instructions per element           AVX2   NEON  ratio\n"
	for _, k := range kernels {
		var counts [2]float64
		for i, arch := range []string{"amd64", "arm64"} {
			file := k.file + "_" + arch + ".s"
			if listings[file] == "" {
				listings[file] = listing(t, arch, file)
			}
			counts[i] = float64(loops(t, listings[file], k.name)[k.at]) / float64(k.elements)
		}
		ratio := counts[1] / counts[0]
		require.LessOrEqual(t, ratio, most, k.name)
		text += fmt.Sprintf("%-32s %6.3f %6.3f %6.2f\n", k.name, counts[0], counts[1], ratio)
	}
	golden.Text(t, "testdata/instructions.txt", text)
}
