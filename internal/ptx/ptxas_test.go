package ptx

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const repoRoot = "../.."

// findPtxas looks in the places that docs/guide/compile.md names.
func findPtxas(t *testing.T) string {
	if p := os.Getenv("PTXAS"); p != "" {
		return p
	}
	if p, err := exec.LookPath("ptxas"); err == nil {
		return p
	}
	found, _ := filepath.Glob(filepath.Join(repoRoot, ".venv/lib/python3*/site-packages/nvidia/cu13/bin/ptxas"))
	if len(found) == 0 {
		t.Skip("no ptxas: set PTXAS, or install nvidia-cuda-nvcc into .venv")
	}
	return found[0]
}

// assemble returns ptxas's messages, remembered by the content of the text.
func assemble(t *testing.T, ptxas, target, text string) string {
	sum := sha256.Sum256([]byte(ptxas + "\x00" + target + "\x00" + text))
	cache := filepath.Join(repoRoot, ".cache", "ptxas", hex.EncodeToString(sum[:16]))
	if out, err := os.ReadFile(cache); err == nil {
		return string(out)
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "k.ptx")
	require.NoError(t, os.WriteFile(src, []byte(text), 0o644))
	out, err := exec.Command(ptxas, "-arch="+target, "-O0", src, "-o", filepath.Join(dir, "k.cubin")).CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatalf("%s: %v", ptxas, err)
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(cache), 0o755))
	require.NoError(t, os.WriteFile(cache, out, 0o644))
	return string(out)
}

var errorLine = regexp.MustCompile(`line (\d+); error\s*: (.*)`)

func TestPtxasAgreesWithEveryRow(t *testing.T) {
	ptxas := findPtxas(t)
	for _, target := range []string{"sm_80", "sm_90", "sm_121", "sm_121a"} {
		t.Run(target, func(t *testing.T) {
			versions := map[Version]bool{}
			for _, op := range Opcodes() {
				d := Lookup(op)
				v := minVersion(target)
				if v.Less(d.Since) {
					v = d.Since
				}
				versions[v] = true
			}
			for v := range versions {
				needs := func(d *Def) bool {
					least := minVersion(target)
					if least.Less(d.Since) {
						least = d.Since
					}
					return least == v
				}
				// What the row claims assembles, in a module of the least version that it claims.
				m, _ := everyRow(target, func(d *Def) bool { return needs(d) && d.Available(target, v) == nil })
				text := m.String()
				for _, e := range complaints(assemble(t, ptxas, target, text), text) {
					t.Errorf("PTX %v: refused: %s", v, e)
				}
				// What needs more is refused, every one of them.
				m, ops := everyRow(target, func(d *Def) bool { return needs(d) && d.Available(target, v) != nil })
				if len(ops) == 0 {
					continue
				}
				_, specific := m.needs()
				text = strings.Replace(m.String(), ".target "+specific, ".target "+target, 1)
				got := strings.Join(complaints(assemble(t, ptxas, target, text), text), "\n")
				for _, op := range ops {
					if !strings.Contains(got, op+" ") && !strings.Contains(got, op+";") {
						t.Errorf("PTX %v: %s assembles for %s, which the row does not claim", v, op, target)
					}
				}
			}
		})
	}
}

// complaints lists ptxas's errors, each with the source line it is about.
func complaints(out, text string) []string {
	lines := strings.Split(text, "\n")
	var list []string
	for _, m := range errorLine.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.Atoi(m[1])
		list = append(list, fmt.Sprintf("%s: %s", strings.TrimSpace(lines[n-1]), m[2]))
	}
	if len(list) == 0 && strings.Contains(out, "fatal") {
		list = append(list, out)
	}
	return list
}
