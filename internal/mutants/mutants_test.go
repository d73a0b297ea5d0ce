package mutants

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// document is where the table stands for readers.
var document = filepath.Join("..", "..", "docs", "mutants.md")

// TestNoMutantGoesUnnoticed runs every mutant: each is found, unless the table says why it breaks nothing, and by whom
// docs/mutants.md says. UPDATE=1 writes that anew.
func TestNoMutantGoesUnnoticed(t *testing.T) {
	ctx := context.Background()
	models := map[string]*model{}
	for i := range Table {
		s := Table[i].In
		key := s.Model + " " + s.Precision
		if models[key] != nil {
			continue
		}
		m := load(t, s.Model, s.Precision)
		caught, detail, err := m.run(ctx, m.program)
		require.NoError(t, err)
		require.Equal(t, nobody, caught, "%s unchanged: %s", key, detail)
		models[key] = m
	}
	var rows strings.Builder
	count := map[string]int{}
	for i := range Table {
		mut := &Table[i]
		t.Run(mut.In.Name+": "+mut.Name, func(t *testing.T) {
			m := models[mut.In.Model+" "+mut.In.Precision]
			p, err := mut.apply(m.program)
			require.NoError(t, err)
			caught, detail, err := m.run(ctx, p)
			require.NoError(t, err)
			t.Log(caught, "–", detail)
			require.Equal(t, mut.Why != "", caught == nobody, "%s: %s", caught, detail)
			count[caught]++
			found := caught
			if caught == nobody {
				found = "nobody: " + mut.Why
			}
			fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", mut.In.Name, mut.Name, mut.Corrupts, found)
		})
	}
	if t.Failed() {
		return
	}
	text := fmt.Sprintf(head, len(Table), len(Table)-count[comparison]-count[nobody], count[comparison], count[nobody]) + rows.String()
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(document, []byte(text), 0o644))
		return
	}
	have, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, string(have), text, "docs/mutants.md is not what the mutants say: UPDATE=1 go test ./internal/mutants")
}

const head = `# Mutants

Kernels of the repository's small generated models and of long and of narrow matrix products, broken on purpose one change at a
time, run twice on the CPU device with all checks on and compared with the reference evaluator in float64
(` + "`internal/mutants`" + `). Written by

    UPDATE=1 go test ./internal/mutants

and held to what it says by the same test. Of %d mutants the checks find %d, the comparison of outputs %d; %d change
nothing that a program could observe.

| kernel | change | corrupts | found by |
|---|---|---|---|
`
