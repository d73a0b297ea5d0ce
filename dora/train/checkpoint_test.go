package train

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
)

// stateOf is a state file whose one value is a byte.
func stateOf(t *testing.T, update int, value byte) []byte {
	t.Helper()
	data, err := encodeState(position{Format: positionFormat, Update: update, Settings: map[string]string{"--lr": "0.1"}, BestFile: []byte{7}},
		dora.Snapshot{Kept: map[string][]byte{"adapter": {value, 0, 0, 0}}})
	require.NoError(t, err)
	return data
}

func TestAStateIsReadAsItWasWritten(t *testing.T) {
	p := position{Format: positionFormat, Settings: map[string]string{"--seed": "3"}, Ranks: 2, Update: 12, Epoch: 1, Batch: 4, Applied: 11, Refused: 1,
		Base: &Evaluation{Loss: 0.1 + 0.2, Terms: map[string]float64{"plan": 1}}, Best: &Evaluation{Loss: 1e-300}, BestAt: 8, BestFile: []byte("adapter"),
		Watch: watch{Smooth: 1. / 3, Least: 0.1, Seen: 12}}
	s := dora.Snapshot{Updates: 11, Refused: 1, Kept: map[string][]byte{"adapter": {1, 2, 3, 4}, "adamw.first": {}}}
	data, err := encodeState(p, s)
	require.NoError(t, err)
	again, snapshot, err := decodeState(data)
	require.NoError(t, err)
	assert.Equal(t, p, again)
	assert.Equal(t, s, snapshot)
}

// TestAStateOfAnotherFormatIsRefused before anything of it is used.
func TestAStateOfAnotherFormatIsRefused(t *testing.T) {
	data, err := encodeState(position{Format: positionFormat + 1}, dora.Snapshot{})
	require.NoError(t, err)
	_, _, err = decodeState(data)
	assert.ErrorContains(t, err, "format 2, this version reads 1")
	_, _, err = decodeState([]byte("not a file"))
	assert.Error(t, err)
}

// TestACheckpointThatCannotBeWrittenLeavesTheOthers, and says so. TestAFullDiskKeepsTheLastCheckpoint fills a disk.
func TestACheckpointThatCannotBeWrittenLeavesTheOthers(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, writeCheckpoint(dir, 2, []byte("a"), stateOf(t, 2, 2)))
	err := writeCheckpoint(filepath.Join(dir, "absent"), 4, []byte("a"), stateOf(t, 4, 4))
	assert.ErrorContains(t, err, "earlier checkpoints are kept")
	path, data, err := lastCheckpoint(dir, func(string) {})
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "update-000002"), path)
	_, s, err := decodeState(data)
	require.NoError(t, err)
	assert.Equal(t, byte(2), s.Kept["adapter"][0])
}

// TestTheLastWholeCheckpointIsTaken: damaged ones are named and passed over; without a whole one it is an error.
func TestTheLastWholeCheckpointIsTaken(t *testing.T) {
	dir := t.TempDir()
	path, data, err := lastCheckpoint(dir, func(string) {})
	require.NoError(t, err)
	assert.Empty(t, path+string(data))
	for _, k := range []int{2, 4, 100, 1000000} {
		require.NoError(t, writeCheckpoint(dir, k, []byte("a"), stateOf(t, k, byte(k))))
	}
	damage := func(k int) {
		file := filepath.Join(dir, checkpointName(k), stateFile)
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, data[:len(data)-1], 0o644))
	}
	damage(1000000)
	require.NoError(t, os.Remove(filepath.Join(dir, checkpointName(100), stateFile)))
	var warned []string
	path, _, err = lastCheckpoint(dir, func(text string) { warned = append(warned, text) })
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "update-000004"), path)
	require.Len(t, warned, 2)
	assert.Contains(t, warned[0], "update-1000000")
	assert.Contains(t, warned[1], "update-000100")
	damage(4)
	damage(2)
	_, _, err = lastCheckpoint(dir, func(string) {})
	assert.ErrorContains(t, err, "none of its 4 checkpoints can be read")
}

func TestOldCheckpointsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, k := range []int{5, 10, 15, 20} {
		require.NoError(t, writeCheckpoint(dir, k, nil, stateOf(t, k, 0)))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, checkpointName(25)+partial), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "update-mine"), 0o755))
	require.NoError(t, prune(dir, 2))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	assert.Equal(t, []string{"update-000015", "update-000020", "update-mine"}, names)
	require.NoError(t, prune(dir, 1))
	assert.NoDirExists(t, filepath.Join(dir, checkpointName(15)))
}

func TestCheckpoint_NamesWhatChanged(t *testing.T) {
	assert.NoError(t, changed(map[string]string{"--lr": "1"}, map[string]string{"--lr": "1"}))
	err := changed(map[string]string{"--lr": "1", "--seed": "2", "--base": ""}, map[string]string{"--lr": "3", "--seed": "2", "--base": "fp8"})
	assert.EqualError(t, err, "--base was not given and is fp8; --lr was 1 and is 3")
	err = changed(map[string]string{programSetting: "1"}, map[string]string{programSetting: "2"})
	assert.ErrorContains(t, err, "another version of spark-dora")
	memory := map[string]string{programSetting: "1", memorySetting: "0"}
	assert.NoError(t, changed(memory, map[string]string{programSetting: "1", memorySetting: "9"}), "both bounds give the same program")
	assert.EqualError(t, changed(memory, map[string]string{programSetting: "2", memorySetting: "9"}), "--memory was 0 and is 9")
}
