package train

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
)

// TestLastCheckpoint_WhatIsNoDamage is an error, so that training does not go on from an earlier update without a word.
func TestLastCheckpoint_WhatIsNoDamage(t *testing.T) {
	later, err := encodeState(position{Format: positionFormat + 1}, dora.Snapshot{})
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		make func(path string) error
		want string
	}{
		{"another version", func(path string) error { return os.WriteFile(path, later, 0o644) },
			"state.safetensors: format 2, this version reads 1: train with the version that wrote it"},
		{"more than memory", func(path string) error { return os.Truncate(path, 1<<40) },
			"state.safetensors: reading it needs 1 TiB of memory, more than the 1 MiB that it may take (--memory)"},
		{"a FIFO", func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644)) },
			"state.safetensors: not a regular file"},
		{"a device", func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) },
			"state.safetensors: not a regular file"},
		{"a directory", func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) },
			"state.safetensors: not a regular file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, k := range []int{2, 4} {
				require.NoError(t, writeCheckpoint(dir, k, nil, stateOf(t, k, 0)))
			}
			require.NoError(t, c.make(filepath.Join(dir, checkpointName(4), stateFile)))
			defer memory.Limit(1 << 20)()
			_, _, err := lastCheckpoint(dir, func(text string) { t.Error(text) })
			require.ErrorContains(t, err, "update-000004 cannot be resumed from: ")
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestDecodeState_SeesAnyChange, be it cut off, longer or changed in a bit.
func TestDecodeState_SeesAnyChange(t *testing.T) {
	whole := stateOf(t, 2, 3)
	_, _, err := decodeState(whole)
	require.NoError(t, err)
	for i := range whole {
		_, _, err := decodeState(whole[:i])
		require.Error(t, err, i)
		changed := slices.Clone(whole)
		changed[i] ^= 1
		_, _, err = decodeState(changed)
		require.Error(t, err, "%d: %q", i, changed)
	}
	_, _, err = decodeState(append(slices.Clone(whole), 0))
	require.Error(t, err)
}

func TestDecodeState_RefusesCountsBelowZero(t *testing.T) {
	for _, p := range []position{
		{Update: -1}, {Epoch: -1}, {Batch: -1}, {Applied: -1}, {Refused: -1}, {BestAt: -1}, {Ranks: -1},
	} {
		p.Format = positionFormat
		data, err := encodeState(p, dora.Snapshot{})
		require.NoError(t, err)
		_, _, err = decodeState(data)
		require.EqualError(t, err, "it counts below zero")
	}
}

// TestSetAside_KeepsDamagedCheckpoints: no later checkpoint takes their place, nor that of one set aside before.
func TestSetAside_KeepsDamagedCheckpoints(t *testing.T) {
	dir := t.TempDir()
	for _, k := range []int{2, 4} {
		require.NoError(t, writeCheckpoint(dir, k, nil, stateOf(t, k, 0)))
	}
	for _, content := range []string{"first", "second", "third"} {
		path := filepath.Join(dir, checkpointName(6))
		require.NoError(t, os.Mkdir(path, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(path, stateFile), []byte(content), 0o644))
		require.NoError(t, setAside(dir, 4))
		require.NoError(t, prune(dir, 2))
	}
	for name, want := range map[string]string{".damaged": "first", ".damaged-2": "second", ".damaged-3": "third"} {
		got, err := os.ReadFile(filepath.Join(dir, checkpointName(6)+name, stateFile))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	updates, err := checkpoints(dir)
	require.NoError(t, err)
	require.Equal(t, []int{4, 2}, updates)
}

// FuzzDecodeState: whatever the bytes, decoding takes a bounded multiple of them, and what is whole is written again as it
// was.
func FuzzDecodeState(f *testing.F) {
	p := position{Format: positionFormat, BestFile: []byte{1}}
	whole, err := encodeState(p, dora.Snapshot{Kept: map[string][]byte{"m": {1, 2}}})
	require.NoError(f, err)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	for _, header := range []string{
		`{"m":{"dtype":"U8","shape":[4611686018427387904],"data_offsets":[0,4611686018427387904]}}`,
		`{"__metadata__":{"spark-compile.train":"{\"format\":1,\"batch\":-1}"}}`,
		`{"__metadata__":{"spark-compile.train":"` + strings.Repeat("[", 1000) + `"}}`,
		strings.Repeat(`{"a":`, 1000),
	} {
		f.Add(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...))
	}
	f.Add(append(binary.LittleEndian.AppendUint64(nil, 1<<62), '{'))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memory.Limit(64 << 20)()
		var p position
		var s dora.Snapshot
		var err error
		hostile.Bounded(t, len(data), 256, func() { p, s, err = decodeState(data) })
		if err != nil {
			return
		}
		again, err := encodeState(p, s)
		require.NoError(t, err)
		q, r, err := decodeState(again)
		require.NoError(t, err)
		require.Equal(t, p, q)
		require.Equal(t, s, r)
	})
}

// TestResume_KeepsADamagedCheckpoint under another name, where training makes the checkpoint again.
func TestResume_KeepsADamagedCheckpoint(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 12)
	opt.Epochs, opt.Val, opt.CheckpointEvery, opt.Keep = 1, 0, 1, 9
	result, err := Run(t.Context(), opt, alone(t))
	require.NoError(t, err)
	last := filepath.Join(opt.Output, checkpointName(result.Updates))
	require.NoError(t, os.Truncate(filepath.Join(last, stateFile), 1000))
	opt.Resume = true
	var said []string
	opt.Message = func(text string) { said = append(said, text) }
	again, err := Run(t.Context(), opt, alone(t))
	require.NoError(t, err)
	require.Equal(t, result.Updates, again.Updates)
	require.Contains(t, said[0], last+" cannot be resumed from: state.safetensors: ")
	damaged, err := os.ReadFile(filepath.Join(last+setAsideSuffix, stateFile))
	require.NoError(t, err)
	require.Len(t, damaged, 1000)
	_, err = readState(filepath.Join(last, stateFile))
	require.NoError(t, err)
}

// TestResume_RefusesPositionsOutsideTheTraining, as of a state file that somebody wrote.
func TestResume_RefusesPositionsOutsideTheTraining(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 12)
	opt.Epochs, opt.Val, opt.CheckpointEvery = 1, 0, 1
	result, err := Run(t.Context(), opt, alone(t))
	require.NoError(t, err)
	path := filepath.Join(opt.Output, checkpointName(result.Updates), stateFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	opt.Resume = true
	for want, change := range map[string]func(p *position, s *dora.Snapshot){
		"is at batch 1000000000 of epoch 0": func(p *position, _ *dora.Snapshot) { p.Epoch, p.Batch = 0, 1e9 },
		"is at batch 0 of epoch 7":          func(p *position, _ *dora.Snapshot) { p.Epoch, p.Batch = 7, 0 },
		"bytes, this step's has": func(_ *position, s *dora.Snapshot) {
			for name := range s.Kept {
				s.Kept[name] = make([]byte, 1<<20)
			}
		},
	} {
		p, s, err := decodeState(whole)
		require.NoError(t, err)
		change(&p, &s)
		data, err := encodeState(p, s)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o644))
		_, err = Run(t.Context(), opt, alone(t))
		require.ErrorContains(t, err, "--resume: "+checkpointName(result.Updates))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "remove it to go on from the one before")
	}
}
