package runtime_test

import (
	"encoding/json"
	"path"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/runtime"
)

// directory is a program's files.
func directory(t *testing.T, p *runtime.Program) fstest.MapFS {
	t.Helper()
	files, err := p.Files()
	require.NoError(t, err)
	dir := fstest.MapFS{}
	for name, data := range files {
		dir[name] = &fstest.MapFile{Data: slices.Clone(data)}
	}
	return dir
}

func TestReadGivesBackWhatWasWritten(t *testing.T) {
	p := accumulator(true)
	p.Outputs[0].Slices = []runtime.Slice{{Name: "head", Start: 0, Stop: 4}}
	p.Variants[0].Cubin = []byte("cubin")
	p.Provenance = runtime.Provenance{Compiler: "v1", SHA256: "12", Flags: []string{"--precision file"}, Accuracy: &runtime.Accuracy{Cosine: .5, Of: "y", On: "x"}}
	dir := directory(t, p)
	got, err := runtime.Read(dir)
	require.NoError(t, err)
	want, err := json.Marshal(p)
	require.NoError(t, err)
	again, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(again))
	require.Equal(t, p.Weights, got.Weights)
	require.Equal(t, p.Variants[0].PTX, got.Variants[0].PTX)
	require.Equal(t, p.Variants[0].Cubin, got.Variants[0].Cubin)
}

func TestBrokenDirectoriesAreRefusedByFile(t *testing.T) {
	for want, spoil := range map[string]func(dir fstest.MapFS){
		"; give a directory that spark-compile wrote": func(d fstest.MapFS) { delete(d, "program.json") },
		"weights.bin":                                       func(d fstest.MapFS) { delete(d, "weights.bin") },
		"sm_80/kernels.ptx":                                 func(d fstest.MapFS) { delete(d, "sm_80/kernels.ptx") },
		"program.json: unexpected end":                      func(d fstest.MapFS) { d["program.json"].Data = d["program.json"].Data[:50] },
		"format version 0":                                  func(d fstest.MapFS) { d["program.json"].Data = []byte("{}") },
		"format version 99, this runtime":                   func(d fstest.MapFS) { d["program.json"].Data = []byte(`{"format": 99}`) },
		"program.json: it is not what spark-compile wrote":  func(d fstest.MapFS) { d["program.json"].Data = []byte(`{"format": 2}`) },
		"weights.bin: it is not what spark-compile wrote":   func(d fstest.MapFS) { d["weights.bin"].Data[0] ^= 1 },
		"kernels.ptx: it is not what spark-compile wrote":   func(d fstest.MapFS) { d["sm_80/kernels.ptx"].Data[9] ^= 1 },
		"kernels.cubin: it is not what spark-compile wrote": func(d fstest.MapFS) { d["sm_80/kernels.cubin"].Data[0] ^= 1 },
		"sm_80/kernels.cubin: file does not exist":          func(d fstest.MapFS) { delete(d, "sm_80/kernels.cubin") },
	} {
		p := accumulator(true)
		p.Variants[0].Cubin = []byte("cubin")
		dir := directory(t, p)
		_, err := runtime.Read(dir)
		require.NoError(t, err)
		spoil(dir)
		_, err = runtime.Read(dir)
		require.ErrorContains(t, err, want)
	}
}

// Every bit of every file is covered.
func TestAnyChangedByteIsNoticed(t *testing.T) {
	dir := directory(t, accumulator(true))
	for name, file := range dir {
		for i := 0; i < len(file.Data); i += 1 + len(file.Data)/97 {
			file.Data[i] ^= 0x10
			_, err := runtime.Read(dir)
			require.ErrorContains(t, err, path.Base(name), "byte %d", i)
			file.Data[i] ^= 0x10
		}
	}
	_, err := runtime.Read(dir)
	require.NoError(t, err)
}

func TestAProgramReplacesOneOfTheSameModelOnly(t *testing.T) {
	other := accumulator(true)
	other.Precision, other.Weights = "fp8", []byte{9}
	require.NoError(t, other.Replaces(accumulator(true)))
	for want, spoil := range map[string]func(p *runtime.Program){
		"another model: this package was generated for acc.onnx, the directory holds other.onnx": func(p *runtime.Program) { p.Model = "other.onnx" },
		"other inputs": func(p *runtime.Program) { p.Inputs[0].Name = "z" },
		"generated for i32[4], the directory holds f16[4]": func(p *runtime.Program) { p.Outputs[0].DType = "f16" },
		"holds i32[2,2]": func(p *runtime.Program) { p.Outputs[0].Shape = []int{2, 2} },
		"slices of y":    func(p *runtime.Program) { p.Outputs[0].Slices = []runtime.Slice{{Name: "head", Stop: 1}} },
		"other states":   func(p *runtime.Program) { p.States = nil },
		"other entries":  func(p *runtime.Program) { p.Variants[0].Entries[0].Name = "step" },
	} {
		p := accumulator(true)
		spoil(p)
		require.ErrorContains(t, p.Replaces(accumulator(true)), want)
	}
}

func TestProgramsThatPointOutsideTheirTablesAreRefused(t *testing.T) {
	for want, spoil := range map[string]func(p *runtime.Program, v *runtime.Variant, l *runtime.Launch){
		`buffer 0 (x): range outside its input`: func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) { v.Buffers[0].Bytes = -1 },
		`unknown kind "heap"`:                   func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) { v.Buffers[0].Kind = "heap" },
		`input "x" has no buffer`:               func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) { v.Buffers[0].Name = "q" },
		`output "y" has no buffer`:              func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) { v.Buffers[2].Name = "q" },
		`an arena of -1 bytes`:                  func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) { v.ArenaBytes = -1 },
		`range outside its constant`:            constant(0, 2),
		`(w): range outside its constant`:       constant(1<<62, 1<<62),
		`launch 0: there is no buffer 77`:       func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Reads[0].Buffer = 77 },
		`launch 0: there is no buffer -1`:       func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Writes[0].Buffer = -1 },
		`range [8,+16) outside buffer y`:        func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Writes[0].Offset = 8 },
		`no buffer 9`:                           func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Params[0].Buffer = 9 },
		`parameter 0 has 3 bytes`:               func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Params[0].Bytes = 3 },
		`parameter 0: a pointer of 4 bytes`:     func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Params[0].Bytes = 4 },
		`more than 4096 bytes of parameters`:    manyParams,
		`grid [0 1 1]`:                          func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Grid[0] = 0 },
		`-1 bytes of shared memory`:             func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Shared = -1 },
		`After names launch 0`:                  func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.After = []int{0} },
		`neither a kernel nor a copy`:           func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Kernel = "" },
		`range [0,+17) outside buffer x`:        copyOf(17),
		`entry run: launches 1 and 0 touch the same memory, one of them writes it, and no path of After orders them`: func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) {
			v.Entries[0].Launches[1].After = nil
		},
		`a second entry run`: func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) {
			v.Entries = append(v.Entries, v.Entries[0])
		},
		`it prefetches input x, which a launch may change`: func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) {
			l.Prefetch = &runtime.Access{Buffer: 0, Bytes: 4}
		},
		`it prefetches 17 bytes from constant w on`: func(p *runtime.Program, v *runtime.Variant, l *runtime.Launch) {
			constant(0, 1)(p, v, l)
			l.Prefetch = &runtime.Access{Buffer: 4, Bytes: 17}
		},
		`range [2,+0) outside buffer w`: func(p *runtime.Program, v *runtime.Variant, l *runtime.Launch) {
			constant(0, 1)(p, v, l)
			l.Prefetch = &runtime.Access{Buffer: 4, Offset: 2}
		},
		`it prefetches 1 bytes from constant w on, and no parameter says so`: func(p *runtime.Program, v *runtime.Variant, l *runtime.Launch) {
			constant(0, 1)(p, v, l)
			l.Prefetch = &runtime.Access{Buffer: 4, Bytes: 1}
		},
		`priority -6 is outside -5 to 0`: func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) { l.Priority = -6 },
		`parameter 4: 0x100 has more than 1 bytes`: func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) {
			l.Params = append(l.Params, runtime.Param{Buffer: -1, Value: 256, Bytes: 1})
		},
		`parameter 4 points to buffer w, which the launch does not declare`: func(p *runtime.Program, v *runtime.Variant, l *runtime.Launch) {
			constant(0, 1)(p, v, l)
			l.Params = append(l.Params, runtime.Param{Buffer: 4, Bytes: 8})
		},
		`After names launch 5`: func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) {
			copyOf(16)(nil, nil, l)
			l.After = []int{5}
		},
		`it writes constant w`: func(p *runtime.Program, v *runtime.Variant, l *runtime.Launch) {
			constant(0, 1)(p, v, l)
			l.Writes = append(l.Writes, runtime.Access{Buffer: 4, Bytes: 1})
		},
		`(w): range outside its variable`: func(p *runtime.Program, v *runtime.Variant, l *runtime.Launch) {
			constant(0, 2)(p, v, l)
			v.Buffers[4].Kind = runtime.VariableBuffer
		},
		`a second state or variable "state_h"`: func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) {
			v.Buffers = append(v.Buffers, v.Buffers[1])
		},
		`state "state_h" has no buffer of kind state or variable`: func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) {
			v.Buffers[1].Kind = runtime.InputBuffer // as programs were before states had buffers
		},
		`"y": slice "tail" is 2 to 5 of 4 elements`: slice(2, 5),
		`"y": slice "tail" is 3 to 2 of 4 elements`: slice(3, 2),
		`"x": shape [4611686018427387904 4]`:        func(p *runtime.Program, _ *runtime.Variant, _ *runtime.Launch) { p.Inputs[0].Shape = []int{1 << 62, 4} },
		`"x": shape [-4]`:                           func(p *runtime.Program, _ *runtime.Variant, _ *runtime.Launch) { p.Inputs[0].Shape = []int{-4} },
	} {
		p := accumulator(true)
		v := &p.Variants[0]
		spoil(p, v, &v.Entries[0].Launches[0])
		require.ErrorContains(t, p.Validate(), want)
	}
	require.NoError(t, accumulator(true).Validate())
}

func constant(offset, bytes int) func(*runtime.Program, *runtime.Variant, *runtime.Launch) {
	return func(_ *runtime.Program, v *runtime.Variant, _ *runtime.Launch) {
		v.Buffers = append(v.Buffers, runtime.Buffer{Name: "w", Kind: runtime.ConstantBuffer, Offset: offset, Bytes: bytes})
	}
}

func manyParams(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) {
	for range 512 {
		l.Params = append(l.Params, runtime.Param{Buffer: -1, Bytes: 8})
	}
}

func copyOf(bytes int) func(*runtime.Program, *runtime.Variant, *runtime.Launch) {
	return func(_ *runtime.Program, _ *runtime.Variant, l *runtime.Launch) {
		l.Kernel, l.Copy = "", &runtime.Copy{Src: runtime.Access{Buffer: 0, Bytes: bytes}, Dst: runtime.Access{Buffer: 2, Bytes: bytes}, Bytes: bytes}
	}
}

func slice(start, stop int) func(*runtime.Program, *runtime.Variant, *runtime.Launch) {
	return func(p *runtime.Program, _ *runtime.Variant, _ *runtime.Launch) {
		p.Outputs[0].Slices = []runtime.Slice{{Name: "tail", Start: start, Stop: stop}}
	}
}

func TestVariantOfATarget(t *testing.T) {
	p := &runtime.Program{Model: "m.onnx", Variants: []runtime.Variant{{Target: "sm_121"}, {Target: "sm_80"}, {Target: "sm_90"}}}
	for target, want := range map[string]string{"": "sm_121", "sm_121": "sm_121", "sm_80": "sm_80", "sm_86": "sm_80", "sm_100": "sm_90", "sm_130": "sm_121"} {
		v, err := p.Variant(target)
		require.NoError(t, err)
		require.Equal(t, want, v.Target, target)
	}
	_, err := p.Variant("sm_75")
	require.ErrorIs(t, err, hal.ErrNoVariant)
	require.ErrorContains(t, err, "--target sm_75")
	_, err = p.Variant("gfx90a")
	require.ErrorContains(t, err, `target "gfx90a"`)
}

// BenchmarkDigests is what comparing a large model's files with their digests costs on loading: 50 MB of weights.
func BenchmarkDigests(b *testing.B) {
	p := accumulator(true)
	p.Weights = make([]byte, 50<<20)
	files, err := p.Files()
	require.NoError(b, err)
	dir := fstest.MapFS{}
	for name, data := range files {
		dir[name] = &fstest.MapFile{Data: data}
	}
	b.SetBytes(50 << 20)
	for b.Loop() {
		_, err := runtime.Read(dir)
		require.NoError(b, err)
	}
}
