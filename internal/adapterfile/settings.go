package adapterfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// mergeInPEFT is what helps where PEFT trained more than an adapter of the unchanged weights.
const mergeInPEFT = "merge it in PEFT (merge_and_unload), export that model to ONNX and compile it"

// neutral are the settings of PEFT that leave a layer W + s·B·A of the unchanged base, whatever their values: which layers
// were adapted is in the names of tensors, and weights are stored as the ONNX file says, not as fan_in_fan_out does.
var neutral = []string{
	"auto_mapping", "base_model_name_or_path", "bias", "corda_config", "ensure_weight_tying", "eva_config", "exclude_modules",
	"fan_in_fan_out", "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config", "lora_dropout",
	"lora_ga_config", "megatron_core", "merge_weights", "peft_version", "qalora_group_size", "revision", "runtime_config",
	"target_modules", "task_type", "velora_config",
}

// understood are the settings that config reads.
var understood = []string{
	"alpha_pattern", "init_lora_weights", "lora_alpha", "peft_type", "r", "rank_pattern", "use_dora", "use_rslora",
}

// refused are the settings that give a layer another form, and what they do.
var refused = map[string]string{
	"alora_invocation_tokens": "the adapter acts on some tokens only: train without it",
	"arrow_config":            "a router mixes adapters: train without it",
	"kasa_config":             "the base weights lose singular values: " + mergeInPEFT,
	"layer_replication":       "layers of the base are repeated: " + mergeInPEFT,
	"lora_bias":               "lora_B has a bias: train without it, or " + mergeInPEFT,
	"modules_to_save":         "whole modules were trained: " + mergeInPEFT,
	"monteclora_config":       "the adapter is sampled: train without it",
	"target_parameters":       "parameters were adapted that are no layer's weight: " + mergeInPEFT,
	"trainable_token_indices": "rows of an embedding were trained: " + mergeInPEFT,
	"use_bdlora":              "A or B is block diagonal: train without it",
	"use_qalora":              "inputs are pooled: train without it",
}

// checkSettings refuses the settings of PEFT under which a layer is not W + s·B·A of the unchanged base, and those that are
// not known and set to something.
func checkSettings(data []byte) error {
	var all map[string]json.RawMessage
	if err := memory.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := string(all[name])
		if slices.Contains([]string{"null", "false", "0", "0.0", `""`, "[]", "{}"}, value) ||
			slices.Contains(neutral, name) || slices.Contains(understood, name) {
			continue
		}
		if len(value) > 40 {
			value = strings.ToValidUTF8(value[:40], "") + "…"
		}
		why, known := refused[name]
		if !known {
			why = "an unknown setting may change what layers compute: remove it if it does not"
		}
		return fmt.Errorf("%s %s: %s", name, value, why)
	}
	return nil
}

// trainedOtherwise are the tensors in PEFT's files that are no adapter of a layer's weight, and how they came to be.
var trainedOtherwise = []struct{ part, why string }{
	{".lora_B.bias", "lora_bias gave lora_B a bias: train without it, or " + mergeInPEFT},
	{".lora_embedding_", "it adapts an embedding: leave embeddings out with exclude_modules, or " + mergeInPEFT},
	{".trainable_tokens_delta", "trainable_token_indices trained rows of an embedding: " + mergeInPEFT},
	{".bias", "bias \"all\" or \"lora_only\" trained it: train with bias \"none\", or " + mergeInPEFT},
	{".weight", "modules_to_save or save_embedding_layers keeps a whole weight: " + mergeInPEFT},
}

// notOfAnAdapter is the error for a tensor whose name Split does not take.
func notOfAnAdapter(name string) error {
	for _, t := range trainedOtherwise {
		if strings.HasSuffix(name, t.part) || strings.HasSuffix(t.part, "_") && strings.Contains(name, t.part) {
			return fmt.Errorf("tensor %q is none of an adapter of a layer's weight: %s", name, t.why)
		}
	}
	return fmt.Errorf("tensor %q is none of an adapter: want names ending in %s, %s or %s", name, suffixA, suffixB, suffixM)
}
