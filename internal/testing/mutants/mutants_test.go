package mutants

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/golden"
)

// testsPage gives the totals of the tables.
const testsPage = "../../../docs/testing.md"

// TestNoMutantGoesUnnoticed runs every mutant: each is found, unless Table says why it breaks nothing and its outputs
// equal the unchanged program's bit for bit. docs/data/mutants.csv says what finds each; UPDATE=1 writes it.
func TestNoMutantGoesUnnoticed(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	models := map[string]*model{}
	for i := range Table {
		s := Table[i].In
		key := s.Model + " " + s.Precision
		if models[key] != nil {
			continue
		}
		m := load(t, s.Model, s.Precision)
		caught, detail, sound, err := m.run(ctx, m.program)
		require.NoError(t, err)
		require.Equal(t, nobody, caught, "%s unchanged: %s", key, detail)
		m.sound = sound
		models[key] = m
	}
	rows := [][]string{{"kernel", "change", "corrupts", "found by"}}
	count := map[string]int{}
	for i := range Table {
		mut := &Table[i]
		t.Run(mut.In.Name+": "+mut.Name, func(t *testing.T) {
			m := models[mut.In.Model+" "+mut.In.Precision]
			p, err := mut.apply(m.program)
			require.NoError(t, err)
			caught, detail, outputs, err := m.run(ctx, p)
			require.NoError(t, err)
			t.Log(caught, "–", detail)
			if caught == nobody {
				require.Empty(t, m.differs(outputs), "what survives must change no bit")
			}
			require.Equal(t, mut.Why != "", caught == nobody, "%s: %s", caught, detail)
			count[caught]++
			found := caught
			if caught == nobody {
				found = "nobody: " + mut.Why
			}
			rows = append(rows, []string{mut.In.Name, mut.Name, mut.Corrupts, found})
		})
	}
	if t.Failed() {
		return
	}
	golden.CSV(t, "../../../docs/data/mutants.csv", rows)
	golden.States(t, testsPage, fmt.Sprintf("Of %d mutants, the checks find %d and the comparison of outputs %d; the other %d",
		len(Table), len(Table)-count[comparison]-count[nobody], count[comparison], count[nobody]))
}
