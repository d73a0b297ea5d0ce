package recovery

import (
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/testdata/gen/damage"
)

// TestARunThatWasInterruptedGoesOn: rows of the file are not made again, others are, a row that failed leaves nothing, and what is
// not a row is an error with its line.
func TestARunThatWasInterruptedGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows")
	made := 0
	ask := func(want Row) *Row {
		r, err := OpenResults(path)
		require.NoError(t, err)
		got, err := r.Row(want, func(row *Row) error {
			made++
			row.Layers, row.Explained = made, 0.1*float64(made)
			return nil
		})
		require.NoError(t, err)
		return got
	}
	rows := []Row{
		{Damage: damage.Int8, Settings: "a"},
		{Damage: damage.Noise, Settings: "a"},
		{Damage: damage.Int8, Settings: "b"},
		{Damage: damage.Int8, Settings: "a", Adapter: "lora"},
		{Damage: damage.Int8, Settings: "a", Adapter: "lora", Trainer: "PEFT"},
		{Damage: damage.Int8, Settings: "a", Adapter: "lora", Chosen: ByLoss},
	}
	for range 2 {
		for i, row := range rows {
			got := ask(row)
			row.Layers, row.Explained = i+1, 0.1*float64(i+1)
			assert.Equal(t, row, *got)
		}
	}
	assert.Equal(t, len(rows), made)

	before, err := os.ReadFile(path)
	require.NoError(t, err)
	r, err := OpenResults(path)
	require.NoError(t, err)
	failed := errors.New("failed")
	_, err = r.Row(Row{Damage: damage.NVFP4}, func(*Row) error { return failed })
	require.ErrorIs(t, err, failed)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, before, after)

	require.NoError(t, os.WriteFile(path, append(after, after[:20]...), 0o666))
	_, err = OpenResults(path)
	assert.ErrorContains(t, err, path+":7: ")
}

// TestRows_HaveTheColumnsOfTheirHeading reads what rows print as CSV files.
func TestRows_HaveTheColumnsOfTheirHeading(t *testing.T) {
	damaged, ours, theirs := Row{Damage: damage.Int8, Strength: 0.5}, Row{Damage: damage.Int8, Adapter: "dora", Chosen: ByLoss}, Row{Damage: damage.Int8, Adapter: "dora", Trainer: "PEFT"}
	for heading, show := range map[string]func(*Row, io.Writer){Heading: (*Row).Print, BaseHeading: (*Row).PrintBase} {
		var out strings.Builder
		out.WriteString(heading)
		for _, r := range []*Row{&damaged, &ours, &theirs} {
			show(r, &out)
		}
		rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 4)
	}
}
