package adapterfile

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPatterns_FirstMatchInFileOrder: cases follow get_pattern_key of PEFT.
func TestPatterns_FirstMatchInFileOrder(t *testing.T) {
	for _, c := range []struct {
		patterns, module string
		want             float64
	}{
		{`{"fc[12]": 16}`, "fc1", 16},
		{`{"fc[12]": 16}`, "net.fc2", 16},
		{`{"fc[12]": 16}`, "net.fc3", 1},
		{`{"fc[12]": 16}`, "netfc1", 1},
		{`{"fc1": 16}`, "fc1.out", 1},
		{`{"fc1": 4, "net.fc1": 16}`, "net.fc1", 4},
		{`{"net.fc1": 16, "fc1": 4}`, "net.fc1", 16},
		{`{"z": 2, "a|z": 3, "a": 4}`, "a", 3},
		{`{"^fc1": 16}`, "fc1", 16},
		{`{"^fc1": 16}`, "net.fc1", 1},
		{`{"a": 2, "b": 3, "a": 5}`, "a", 5},
		{`{"a": 2, ".*": 3, "a": 5}`, "a", 5},
		{`{"layers\\.\\d+\\.q": 8}`, "model.layers.11.q", 8},
		{`{"x+y": 8}`, "x+y", 8}, // no match, but the name itself
		{`null`, "a", 1},
		{`{}`, "a", 1},
	} {
		var p patterns[float64]
		require.NoError(t, json.Unmarshal([]byte(c.patterns), &p), c.patterns)
		got, err := p.of(c.module, 1)
		require.NoError(t, err, c.patterns)
		assert.Equal(t, c.want, got, "%s of %s", c.patterns, c.module)
	}
	for _, bad := range []string{`fc(?=1)`, `(a)\1`, `a{,2}`, `[[:alpha:]]1`} {
		_, err := patterns[float64]{{bad, 2}}.of("fc1", 1)
		assert.ErrorContains(t, err, "cannot be matched", bad)
	}
}

func layers(modules ...string) Model {
	m := Model{Name: "m.onnx", Base: "base"}
	for _, name := range modules {
		m.Layers = append(m.Layers, &Layer{Module: name, Out: 8, Row: 8, Group: 1})
	}
	return m
}

func f32Tensor(shape ...int) Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	var data []byte
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	return Tensor{DType: "F32", Shape: shape, Data: data}
}

// peftFolder writes tensors and settings as PEFT does, and returns the path of the tensors.
func peftFolder(t *testing.T, settings string, tensors map[string]Tensor) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, PEFTFile), []byte(settings), 0o666))
	path := filepath.Join(dir, peftModel)
	require.NoError(t, (&TensorFile{Tensors: tensors}).Write(path))
	return path
}

func TestRead_PEFTPatterns(t *testing.T) {
	path := peftFolder(t, `{"peft_type": "LORA", "r": 4, "lora_alpha": 8,
		"rank_pattern": {"fc[2]": 2}, "alpha_pattern": {"fc1": 4, "net.fc1": 16, "fc.": 32}}`,
		map[string]Tensor{
			Prefix + "net.fc1.lora_A.weight": f32Tensor(4, 8), Prefix + "net.fc1.lora_B.weight": f32Tensor(8, 4),
			Prefix + "net.fc2.lora_A.weight": f32Tensor(2, 8), Prefix + "net.fc2.lora_B.weight": f32Tensor(8, 2),
		})
	f, err := Read(path, layers("net.fc1", "net.fc2"))
	require.NoError(t, err)
	require.Len(t, f.Entries, 2)
	assert.Equal(t, []float64{4, 32}, []float64{f.Entries[0].Alpha, f.Entries[1].Alpha})
	assert.Equal(t, []int{4, 2}, []int{f.Entries[0].Rank, f.Entries[1].Rank})
}

// What is written is read back by PEFT's rule, also where a name ends like another one or is no expression of itself.
func TestSave_PEFTPatternsMatchTheirLayersOnly(t *testing.T) {
	m := layers("fc", "net.fc", "net.other", "a+b")
	a := &File{Base: m.Base, Labels: map[string]string{}}
	for i, alpha := range []float64{16, 8, 8, 4} {
		part := &Part{Kind: LoRA, Rank: 1, Alpha: alpha, A: make([]float32, 8), B: make([]float32, 8)}
		a.Entries = append(a.Entries, Entry{Layer: m.Layers[i], Part: part})
	}
	a.Entries[1].Rank, a.Entries[1].A, a.Entries[1].B = 2, make([]float32, 16), make([]float32, 16)
	// The first layer's values are the defaults, which the others differ from.
	a.Entries[0], a.Entries[2] = a.Entries[2], a.Entries[0]
	m.Layers[0], m.Layers[2] = m.Layers[2], m.Layers[0]
	path := filepath.Join(t.TempDir(), peftModel)
	require.NoError(t, a.Save(path))
	f, err := ReadTensors(path)
	require.NoError(t, err)
	f.Metadata = nil
	require.NoError(t, f.Write(path))
	back, err := Read(path, m)
	require.NoError(t, err)
	assert.Equal(t, a, back)
}

// A model's state has the adapter's name in the names of tensors, which PEFT removes from files.
func TestRead_TensorsWithAdapterName(t *testing.T) {
	settings := `{"peft_type": "LORA", "r": 2, "lora_alpha": 8, "use_dora": true}`
	tensors := map[string]Tensor{
		Prefix + "fc.lora_A.default.weight":                f32Tensor(2, 8),
		Prefix + "fc.lora_B.default.weight":                f32Tensor(8, 2),
		Prefix + "fc.lora_magnitude_vector.default.weight": f32Tensor(8),
	}
	f, err := Read(peftFolder(t, settings, tensors), layers("fc"))
	require.NoError(t, err)
	assert.Equal(t, float32(15), f.Entries[0].A[15])
	assert.Equal(t, float32(7), f.Entries[0].M[7])

	tensors[Prefix+"fc.lora_A.other.weight"] = f32Tensor(2, 8)
	_, err = Read(peftFolder(t, settings, tensors), layers("fc"))
	assert.ErrorContains(t, err, `lora_A.other.weight": layer "fc" has another one of its kind; `+
		`keep one adapter in a file`)
	delete(tensors, Prefix+"fc.lora_A.other.weight")
	tensors[Prefix+"fc.lora_A.default.weight"] = f32Tensor(3, 8)
	_, err = Read(peftFolder(t, settings, tensors), layers("fc"))
	assert.ErrorContains(t, err, "lora_A has rank 3, adapter_config.json says 2")
	tensors[Prefix+"fc.lora_A.default.weight"] = f32Tensor(2, 8)
}

func TestRead_PEFTSettingsThatChangeTheLayerAreRefused(t *testing.T) {
	tensors := map[string]Tensor{
		Prefix + "fc.lora_A.weight": f32Tensor(2, 8), Prefix + "fc.lora_B.weight": f32Tensor(8, 2),
	}
	const merge = mergeInPEFT
	for setting, want := range map[string]string{
		`"init_lora_weights": "pissa"`:          `init_lora_weights "pissa" changes the base weights`,
		`"init_lora_weights": "pissa_niter_16"`: `init_lora_weights "pissa_niter_16" changes the base weights`,
		`"init_lora_weights": "OLoRA"`:          `init_lora_weights "OLoRA" changes the base weights`,
		`"init_lora_weights": "corda"`:          `"corda" changes the base weights: save the adapter as one of the unchanged base`,
		`"init_lora_weights": "lora_ga"`:        `init_lora_weights "lora_ga" changes the base weights`,
		`"init_lora_weights": "loftq"`:          `init_lora_weights "loftq" rounds the base weights: ` + merge,
		`"init_lora_weights": "newer"`:          `init_lora_weights "newer" changes the base weights`,
		`"init_lora_weights": {"a": 1}`:         `changes the base weights`,
		`"use_qalora": true`:                    "use_qalora true: inputs are pooled: train without it",
		`"alora_invocation_tokens": [1]`:        "alora_invocation_tokens [1]: the adapter acts on some tokens only",
		`"modules_to_save": ["head"]`:           `modules_to_save ["head"]: whole modules were trained: ` + merge,
		`"lora_bias": true`:                     "lora_bias true: lora_B has a bias: train without it, or " + merge,
		`"trainable_token_indices": [5]`:        "trainable_token_indices [5]: rows of an embedding were trained: " + merge,
		`"layer_replication": [[0, 2], [1, 2]]`: "layers of the base are repeated: " + merge,
		`"target_parameters": ["w"]`:            "parameters were adapted that are no layer's weight: " + merge,
		`"use_bdlora": {"nblocks": 2}`:          "A or B is block diagonal",
		`"kasa_config": {"beta": 1}`:            "the base weights lose singular values",
		`"use_newer": true`:                     "use_newer true: an unknown setting may change what layers compute",
		`"alpha_pattern": {"(?!x)fc": 1}`:       `alpha_pattern: pattern "(?!x)fc" cannot be matched`,
		`"rank_pattern": ["fc"]`:                "want an object of patterns",
	} {
		path := peftFolder(t, `{"peft_type": "LORA", "r": 2, "lora_alpha": 8, `+setting+`}`, tensors)
		_, err := Read(path, layers("fc"))
		assert.ErrorContains(t, err, want, setting)
		assert.ErrorContains(t, err, PEFTFile, setting)
	}
	for _, setting := range []string{
		`"init_lora_weights": true`, `"init_lora_weights": false`, `"init_lora_weights": null`, `"init_lora_weights": "mica"`,
		`"init_lora_weights": "gaussian"`, `"init_lora_weights": "eva", "eva_config": {"rho": 2.0}`,
		`"alpha_pattern": null, "rank_pattern": null`, `"modules_to_save": null, "lora_bias": false, "use_newer": false`,
		`"modules_to_save": [], "use_newer": {}`, `"bias": "all", "qalora_group_size": 16, "megatron_core": "megatron.core"`,
	} {
		path := peftFolder(t, `{"peft_type": "LORA", "r": 2, "lora_alpha": 8, `+setting+`}`, tensors)
		_, err := Read(path, layers("fc"))
		assert.NoError(t, err, setting)
	}
}

// TestRead_PEFTTensorsOfOtherKindsAreRefused: PEFT also writes tensors that are not adapter weights, and its
// settings do not mention them.
func TestRead_PEFTTensorsOfOtherKindsAreRefused(t *testing.T) {
	for name, want := range map[string]string{
		"fc.lora_B.bias":                             "lora_bias gave lora_B a bias",
		"fc.base_layer.bias":                         `bias "all" or "lora_only" trained it: train with bias "none"`,
		"norm.bias":                                  `bias "all" or "lora_only" trained it`,
		"head.weight":                                "modules_to_save or save_embedding_layers keeps a whole weight",
		"head.modules_to_save.default.weight":        "modules_to_save or save_embedding_layers keeps a whole weight",
		"embed.lora_embedding_A":                     "it adapts an embedding",
		"embed.token_adapter.trainable_tokens_delta": "trainable_token_indices trained rows of an embedding",
		"fc.lora_diag":                               "want names ending in .lora_A.weight",
	} {
		path := peftFolder(t, `{"peft_type": "LORA", "r": 2, "lora_alpha": 8}`, map[string]Tensor{
			Prefix + "fc.lora_A.weight": f32Tensor(2, 8), Prefix + "fc.lora_B.weight": f32Tensor(8, 2),
			Prefix + name: f32Tensor(8),
		})
		_, err := Read(path, layers("fc"))
		assert.ErrorContains(t, err, peftModel+`: tensor "`+Prefix+name+`"`)
		assert.ErrorContains(t, err, want)
	}
}

// PEFT's lora_A of a grouped convolution is [r, in, taps…], ours [r, in/g, taps…]; and PEFT has neither magnitudes alone nor
// two kinds of layers in an adapter.
func TestPEFT_LayersThatItHasOtherwiseAreRefused(t *testing.T) {
	m := layers("conv", "fc", "norm")
	m.Layers[0].Group, m.Layers[0].Row, m.Layers[0].Taps = 2, 4*9, []int{3, 3}
	grouped := map[string]Tensor{
		Prefix + "conv.lora_A.weight": f32Tensor(2, 8, 3, 3), Prefix + "conv.lora_B.weight": f32Tensor(8, 1, 1, 1),
	}
	const settings = `{"peft_type": "LORA", "r": 2, "lora_alpha": 8}`
	for range 2 { // lora_A as PEFT has it, and of the shape that ours has
		_, err := Read(peftFolder(t, settings, grouped), m)
		assert.ErrorContains(t, err, `layer "conv": PEFT's lora_A of a grouped convolution reads the channels of all groups, `+
			`which its weight cannot: leave it out with exclude_modules`)
		grouped[Prefix+"conv.lora_A.weight"] = f32Tensor(2, 4, 3, 3)
	}

	part := func(kind Kind, l *Layer) *Part {
		p := &Part{Kind: kind, M: make([]float32, 8)}
		if kind != Magnitude {
			p.Rank, p.Alpha = 2, 1
			p.A, p.B = make([]float32, 2*l.Row), make([]float32, 2*8/l.Group)
		}
		if kind == LoRA {
			p.M = nil
		}
		return p
	}
	for _, c := range []struct {
		layer int
		kind  Kind
		rs    bool
		want  string
	}{
		{0, DoRA, false, `layer "conv": PEFT's lora_A of a grouped convolution`},
		{2, Magnitude, false, `layer "norm": PEFT has no adapters of kind magnitude: give the file another name than ` + peftModel},
		{2, LoRA, false, `layer "norm": in PEFT all layers have one kind and one scaling, those of layer "fc"`},
		{2, DoRA, true, `layer "norm": in PEFT all layers have one kind and one scaling, those of layer "fc"`},
		{2, DoRA, false, ""},
	} {
		a := &File{Base: m.Base, Labels: map[string]string{}, Entries: []Entry{{Layer: m.Layers[1], Part: part(DoRA, m.Layers[1])}}}
		a.Entries = append(a.Entries, Entry{Layer: m.Layers[c.layer], Part: part(c.kind, m.Layers[c.layer])})
		a.Entries[1].RS = c.rs
		path := filepath.Join(t.TempDir(), peftModel)
		err := a.Save(path)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, path+": "+c.want)
		assert.NoFileExists(t, path)
		assert.NoFileExists(t, filepath.Join(filepath.Dir(path), PEFTFile))
		require.NoError(t, a.Save(filepath.Join(t.TempDir(), "a.safetensors")))
	}
}
