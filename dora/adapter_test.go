package dora

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/adapterfile"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// trained is an adapter as training might leave it.
func trained(t *testing.T, m *Model, opt InitOptions) *Adapter {
	t.Helper()
	a, err := Init(m, opt)
	require.NoError(t, err)
	for _, l := range a.Layers {
		for i := range l.B {
			l.B[i] = float32(0.02 * math.Sin(float64(i)))
		}
		for i := range l.M {
			l.M[i] *= float32(1 + 0.1*math.Cos(float64(i)))
		}
	}
	return a
}

// outputs evaluates a graph with an adapter put in, in float64.
func outputs(t *testing.T, m *Model, a *Adapter, in map[string]*ir.Array) map[string]*ir.Array {
	t.Helper()
	g, err := promoted(m.graph)
	require.NoError(t, err)
	all := map[string]*ir.Array{}
	for k, v := range in {
		all[k] = v
	}
	if a != nil {
		require.NoError(t, passes.Run(passContext("", a.passes(), passes.Base{}), g, []string{"insert-dora"}, nil))
		trained, _, _ := a.vectors()
		for _, p := range trained.parts {
			x := ir.NewArray(ir.T(ir.Float32, p.shape...))
			for i, v := range *p.data {
				x.F[i] = float64(v)
			}
			all[p.name] = x
		}
	}
	out, err := ir.Evaluate(context.Background(), g, all, ir.EvalOptions{})
	require.NoError(t, err)
	return out
}

func relative(t *testing.T, want, got map[string]*ir.Array) float64 {
	t.Helper()
	var missed, size float64
	for name, w := range want {
		require.Len(t, got[name].F, len(w.F), name)
		for i, x := range w.F {
			missed += (got[name].F[i] - x) * (got[name].F[i] - x)
			size += x * x
		}
	}
	return math.Sqrt(missed / size)
}

var models = []string{"vision", "policy", "dmonitoring", "supercombo"}

// TestANewAdapterChangesNothing, of any kind and for every model.
func TestANewAdapterChangesNothing(t *testing.T) {
	fulltest.Long(t)
	for _, name := range models {
		m := small(t, name)
		in := calibrate.Generate(m.graph, 1)[0]
		base := outputs(t, m, nil, in)
		for _, kind := range []passes.AdapterKind{DoRA, LoRA, Magnitude} {
			a, err := Init(m, InitOptions{Kind: kind, Rank: 2})
			require.NoError(t, err)
			assert.Less(t, relative(t, base, outputs(t, m, a, in)), 1e-6, "%s %s", name, kind) // magnitudes are f32
			assert.Greater(t, relative(t, base, outputs(t, m, trained(t, m, InitOptions{Kind: kind, Rank: 2}), in)), 1e-4)
		}
	}
}

// TestSizeIsBounded: ranks are dealt out within the bound, and what matters more gets more.
func TestSizeIsBounded(t *testing.T) {
	sizes := []string{"policy", "dmonitoring"}
	if fulltest.Runs(t.Name()) {
		sizes = models
	}
	for _, name := range sizes {
		src, err := driving.Make(name, driving.Full)
		require.NoError(t, err)
		file, err := onnx.Decode(name+".onnx", src.ONNX)
		require.NoError(t, err)
		m, err := Open(file, onnx.ImportOptions{})
		require.NoError(t, err)
		a, err := Init(m, InitOptions{MaxSize: 0.01})
		require.NoError(t, err)
		text, err := a.Encode()
		require.NoError(t, err)
		t.Logf("%s: %d of %d weights, %d numbers, %.2f %% of %d bytes", name, len(a.Layers), len(m.Weights), a.Params(), 100*float64(len(text))/float64(m.Bytes), m.Bytes)
		assert.Less(t, float64(len(text)), 0.01*float64(m.Bytes), name)
		assert.Greater(t, float64(len(text)), 0.008*float64(m.Bytes), name)
	}
	m := small(t, "policy")
	even, err := Init(m, InitOptions{MaxSize: 0.1})
	require.NoError(t, err)
	matters := map[string]float64{}
	for _, w := range m.Weights {
		matters[w.Module] = 0.001
	}
	last := even.Layers[len(even.Layers)-1]
	matters[last.Module] = 1
	odd, err := Init(m, InitOptions{MaxSize: 0.1, Sensitivity: matters})
	require.NoError(t, err)
	i := slices.IndexFunc(odd.Layers, func(l *Layer) bool { return l.Module == last.Module })
	assert.Greater(t, odd.Layers[i].Rank, last.Rank)
	_, err = Init(m, InitOptions{MaxSize: 1e-6})
	assert.ErrorContains(t, err, "no adapter fits into 0.0001 % of the")
}

func TestTargets(t *testing.T) {
	m := small(t, "policy")
	for pattern, want := range map[string]int{"blocks.0.*": 4, "*qkv": 3, "/\\.(up|down)$/": 6, "onnx::MatMul_2001": 1, "*": len(m.Weights)} {
		list, err := m.Targets([]string{pattern})
		require.NoError(t, err)
		assert.Len(t, list, want, pattern)
	}
	for pattern, want := range map[string]string{
		"blocks.9": `policy.onnx: target "blocks.9" matches none of the`, "/(/": "missing closing )",
		"blocks.0.ln1.weight": `initializer "blocks.0.ln1.weight" takes no adapter: node "/blocks/blocks.0/ln1/LayerNormalization"`,
	} {
		_, err := m.Targets([]string{"*qkv", pattern})
		assert.ErrorContains(t, err, want)
	}
}

func TestModulesAreNamedAsPyTorchDoes(t *testing.T) {
	for _, c := range [][3]string{
		{"onnx::MatMul_2011", "/blocks/blocks.0/qkv/MatMul", "blocks.0.qkv"}, {"plan.2.weight", "/plan/plan.2/Gemm", "plan.2"},
		{"W", "MatMul_3", "W"}, {"onnx::Conv_7", "/narrow/stages.0/blocks/blocks.1/fc1/Conv", "narrow.stages.0.blocks.1.fc1"}, {".weight", "/a/Conv", "a"},
	} {
		assert.Equal(t, c[2], module(c[0], c[1]))
	}
}

func TestAdapter_SaveAndLoad(t *testing.T) {
	m := small(t, "dmonitoring")
	a := trained(t, m, InitOptions{Rank: 3, Alpha: 2, RS: true, FullNorm: true, Labels: map[string]string{"car": "a b", "condition": "rain"}})
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, a.Save(path))
	back, err := Load(path, m)
	require.NoError(t, err)
	assert.Equal(t, a, back)
	once, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, back.Save(path))
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, once, again)
	_, err = os.Stat(filepath.Join(filepath.Dir(path), adapterfile.PEFTFile))
	assert.ErrorIs(t, err, os.ErrNotExist)

	other := small(t, "policy")
	_, err = Load(path, other)
	assert.ErrorContains(t, err, "a.safetensors: it belongs to another base: the adapter was made of "+m.Base[:12]+", policy.onnx is "+other.Base[:12])
}

// TestAnAdapterOfPEFT is read by its settings: ranks and alphas by module, or by how their names end.
func TestAnAdapterOfPEFT(t *testing.T) {
	m := small(t, "policy")
	a := trained(t, m, InitOptions{Rank: 3, Alpha: 2, Targets: []string{"blocks.0.*", "plan.0"}})
	a.Layers[1].Rank, a.Layers[1].Alpha = 2, 5
	a.Layers[1].fill(1)
	dir := t.TempDir()
	path := filepath.Join(dir, "adapter_model.safetensors")
	require.NoError(t, a.Save(path))
	f, err := adapterfile.ReadTensors(path)
	require.NoError(t, err)
	f.Metadata = map[string]string{"format": "pt"}
	require.NoError(t, f.Write(path))
	back, err := Load(path, m)
	require.NoError(t, err)
	a.Labels = map[string]string{}
	assert.Equal(t, a, back)

	var c struct {
		DoRA        bool           `json:"use_dora"`
		RankPattern map[string]int `json:"rank_pattern"`
	}
	text, err := os.ReadFile(filepath.Join(dir, adapterfile.PEFTFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &c))
	assert.True(t, c.DoRA)
	assert.Equal(t, map[string]int{a.Layers[1].Module: 2}, c.RankPattern)
	change := func(old, new string) {
		require.Contains(t, string(text), old)
		require.NoError(t, os.WriteFile(filepath.Join(dir, adapterfile.PEFTFile), []byte(strings.Replace(string(text), old, new, 1)), 0o666))
	}
	change(`"LORA"`, `"IA3"`)
	_, err = Load(path, m)
	assert.ErrorContains(t, err, `peft_type "IA3"`)
	change(`"r": 3`, `"r": 4`)
	_, err = Load(path, m)
	assert.ErrorContains(t, err, "lora_A has rank 3, adapter_config.json says 4")
	require.NoError(t, os.Remove(filepath.Join(dir, adapterfile.PEFTFile)))
	_, err = Load(path, m)
	assert.ErrorContains(t, err, "it has no settings")
}

// TestHostileAdapters: what does not fit the model is refused by name.
func TestHostileAdapters(t *testing.T) {
	m := small(t, "policy")
	for want, spoil := range map[string]func(f *adapterfile.TensorFile){
		`tensor "base_model.model.nowhere.lora_A.weight": the model has no layer "nowhere"`: func(f *adapterfile.TensorFile) {
			f.Tensors[adapterfile.Prefix+"nowhere.lora_A.weight"] = adapterfile.Tensor{DType: "F32", Shape: []int{0}, Data: nil}
		},
		`tensor "x" is none of an adapter`: func(f *adapterfile.TensorFile) { f.Tensors["x"] = adapterfile.Tensor{DType: "F32", Shape: []int{0}} },
		`element 3 is NaN`: func(f *adapterfile.TensorFile) {
			copy(f.Tensors[adapterfile.Prefix+"plan.0.lora_B.weight"].Data[12:], []byte{0, 0, 0xc0, 0x7f})
		},
		`shape [2 64], layer "plan.0" of kind dora and rank 2 wants`: func(f *adapterfile.TensorFile) {
			f.Tensors[adapterfile.Prefix+"plan.0.lora_B.weight"] = adapterfile.Tensor{DType: "F32", Shape: []int{2, 64}, Data: make([]byte, 512)}
		},
		`elements of type I32`: func(f *adapterfile.TensorFile) {
			b := f.Tensors[adapterfile.Prefix+"plan.0.lora_B.weight"]
			b.DType = "I32"
			f.Tensors[adapterfile.Prefix+"plan.0.lora_B.weight"] = b
		},
		`layer "plan.0" of kind dora has not the tensors of that kind`: func(f *adapterfile.TensorFile) { delete(f.Tensors, adapterfile.Prefix+"plan.0.lora_B.weight") },
		`the metadata says nothing of layer "blocks.0.qkv"`: func(f *adapterfile.TensorFile) {
			f.Tensors[adapterfile.Prefix+"blocks.0.qkv.lora_A.weight"] = f.Tensors[adapterfile.Prefix+"plan.0.lora_A.weight"]
		},
		`rank 0: want a multiple`: func(f *adapterfile.TensorFile) {
			f.Metadata[adapterfile.KeyLayers] = `{"plan.0":{"kind":"dora","alpha":1}}`
		},
		`rank 9000: want a multiple`: func(f *adapterfile.TensorFile) {
			f.Metadata[adapterfile.KeyLayers] = `{"plan.0":{"kind":"dora","rank":9000,"alpha":1}}`
		},
		`unknown kind "x"`: func(f *adapterfile.TensorFile) {
			f.Metadata[adapterfile.KeyLayers] = `{"plan.0":{"kind":"x","rank":2,"alpha":1}}`
		},
		`alpha 0, want a finite`: func(f *adapterfile.TensorFile) {
			f.Metadata[adapterfile.KeyLayers] = `{"plan.0":{"kind":"lora","rank":2}}`
		},
		`metadata spark-compile`: func(f *adapterfile.TensorFile) { f.Metadata[adapterfile.KeyLayers] = `{` },
		`is in the metadata, but has no tensors`: func(f *adapterfile.TensorFile) {
			f.Metadata[adapterfile.KeyLayers] = strings.Replace(f.Metadata[adapterfile.KeyLayers], "{", `{"blocks.0.qkv":{"kind":"lora","rank":1,"alpha":1},`, 1)
		},
		`there is no tensor of an adapter`: func(f *adapterfile.TensorFile) { f.Tensors, f.Metadata[adapterfile.KeyLayers] = nil, "{}" },
	} {
		a := trained(t, m, InitOptions{Rank: 2, Targets: []string{"plan.0"}})
		path := filepath.Join(t.TempDir(), "a.safetensors")
		require.NoError(t, a.Save(path))
		f, err := adapterfile.ReadTensors(path)
		require.NoError(t, err)
		spoil(f)
		require.NoError(t, f.Write(path))
		_, err = Load(path, m)
		assert.ErrorContains(t, err, want)
	}
	a := trained(t, m, InitOptions{Rank: 2, Targets: []string{"plan.0"}})
	a.Layers[0].A[5] = float32(math.NaN())
	assert.ErrorContains(t, a.Save(filepath.Join(t.TempDir(), "a")), "layer plan.0: lora_A.weight[5] is NaN")
}

// TestTheMergedModel computes what the adapted one does, but for the rounding of its weights, and is the base otherwise: size,
// names, types, launches.
func TestTheMergedModel(t *testing.T) {
	fulltest.Long(t)
	for _, name := range models {
		m := small(t, name)
		a := trained(t, m, InitOptions{Rank: 2})
		path := filepath.Join(t.TempDir(), "merged.onnx")
		require.NoError(t, Merge(m, a, path))
		file, err := onnx.Load(path)
		require.NoError(t, err)
		require.NoError(t, file.Validate())
		merged, err := Open(file, onnx.ImportOptions{})
		require.NoError(t, err)
		in := calibrate.Generate(m.graph, 1)[0]
		want := outputs(t, m, a, in)
		moved := relative(t, outputs(t, m, nil, in), want)
		missed := relative(t, want, outputs(t, merged, nil, in))
		t.Logf("%s: the adapter moves outputs by %.3g, the merged file misses them by %.2g", name, moved, missed)
		assert.Less(t, missed, 0.01*moved)

		// Nothing else changes.
		base, back := proto.Clone(m.File.Proto).(*onnxpb.ModelProto), proto.Clone(file.Proto).(*onnxpb.ModelProto)
		changed := 0
		for i, t1 := range base.Graph.Initializer {
			t2 := back.Graph.Initializer[i]
			if !proto.Equal(t1, t2) {
				changed++
				t2.RawData = t1.RawData
			}
		}
		assert.Equal(t, len(a.Layers), changed)
		assert.True(t, proto.Equal(base, back))
		st, err := os.Stat(path)
		require.NoError(t, err)
		text, err := m.File.Marshal()
		require.NoError(t, err)
		assert.EqualValues(t, len(text), st.Size())
		launches := func(f *onnx.Model) int {
			r, err := compile.Compile(context.Background(), f, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
			require.NoError(t, err)
			return len(r.Program.Variants[0].Entries[0].Launches)
		}
		assert.Equal(t, launches(m.File), launches(file), name)
	}
}

// TestMergedInFloat32: where the file stores f32, the merged model is the adapted one to 1e-5.
func TestMergedInFloat32(t *testing.T) {
	m := small(t, "policy")
	for _, p := range m.File.Proto.Graph.Initializer {
		if p.GetDataType() == int32(onnxpb.TensorProto_FLOAT16) {
			x, err := m.File.Tensor(p)
			require.NoError(t, err)
			w := onnx.TensorProto(ir.FromFloats(ir.T(ir.Float32, x.Shape...), x.Floats()))
			p.DataType, p.RawData = w.DataType, w.RawData
		}
	}
	for _, n := range m.File.Proto.Graph.Node {
		for _, a := range n.Attribute {
			if a.GetName() == "to" && a.GetI() == int64(onnxpb.TensorProto_FLOAT16) {
				a.I = proto.Int64(int64(onnxpb.TensorProto_FLOAT))
			}
			if v := a.GetT(); v.GetDataType() == int32(onnxpb.TensorProto_FLOAT16) {
				x, err := m.File.Tensor(v)
				require.NoError(t, err)
				w := onnx.TensorProto(ir.FromFloats(ir.T(ir.Float32, x.Shape...), x.Floats()))
				v.DataType, v.RawData = w.DataType, w.RawData
			}
		}
	}
	for _, v := range append(m.File.Proto.Graph.Input, m.File.Proto.Graph.Output...) {
		if tt := v.Type.GetTensorType(); tt.GetElemType() == int32(onnxpb.TensorProto_FLOAT16) {
			tt.ElemType = proto.Int32(int32(onnxpb.TensorProto_FLOAT))
		}
	}
	m.File.Proto.Graph.ValueInfo = nil
	text, err := m.File.Marshal()
	require.NoError(t, err)
	file, err := onnx.Decode("policy32.onnx", text)
	require.NoError(t, err)
	m, err = Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	a := trained(t, m, InitOptions{Rank: 2})
	path := filepath.Join(t.TempDir(), "merged.onnx")
	require.NoError(t, Merge(m, a, path))
	file, err = onnx.Load(path)
	require.NoError(t, err)
	merged, err := Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	in := calibrate.Generate(m.graph, 1)[0]
	assert.Less(t, relative(t, outputs(t, m, a, in), outputs(t, merged, nil, in)), 1e-6)
}

// TestMergeOfExternalData: the model's external files are copied with the adapted weights in them.
func TestMergeOfExternalData(t *testing.T) {
	m := small(t, "policy")
	dir := t.TempDir()
	var data []byte
	for _, p := range m.File.Proto.Graph.Initializer {
		if len(p.RawData) < 1024 {
			continue
		}
		p.ExternalData = []*onnxpb.StringStringEntryProto{
			{Key: proto.String("location"), Value: proto.String("w.bin")},
			{Key: proto.String("offset"), Value: proto.String(itoa(len(data)))}, {Key: proto.String("length"), Value: proto.String(itoa(len(p.RawData)))},
		}
		p.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
		data = append(data, p.RawData...)
		p.RawData = nil
	}
	text, err := m.File.Marshal()
	require.NoError(t, err)
	from := filepath.Join(dir, "base", "policy.onnx")
	require.NoError(t, os.MkdirAll(filepath.Dir(from), 0o777))
	require.NoError(t, os.WriteFile(from, text, 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "base", "w.bin"), data, 0o666))
	file, err := onnx.Load(from)
	require.NoError(t, err)
	m, err = Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	a := trained(t, m, InitOptions{Rank: 2, Targets: []string{"blocks.0.qkv", "plan.0"}})
	assert.ErrorContains(t, Merge(m, a, filepath.Join(dir, "base", "merged.onnx")), "write it to another folder")
	to := filepath.Join(dir, "out", "merged.onnx")
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o777))
	require.NoError(t, Merge(m, a, to))
	file, err = onnx.Load(to)
	require.NoError(t, err)
	merged, err := Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	in := calibrate.Generate(m.graph, 1)[0]
	assert.Less(t, relative(t, outputs(t, m, a, in), outputs(t, merged, nil, in)), 2e-3)
	kept, err := os.ReadFile(filepath.Join(dir, "base", "w.bin"))
	require.NoError(t, err)
	assert.Equal(t, data, kept)
}

func itoa(n int) string { text, _ := json.Marshal(n); return string(text) }
