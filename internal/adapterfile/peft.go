package adapterfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/memory"
)

// config is PEFT's adapter_config.json, the part that says what its tensors mean.
type config struct {
	PeftType     string            `json:"peft_type"`
	Base         string            `json:"base_model_name_or_path"`
	Rank         int               `json:"r"`
	Alpha        float64           `json:"lora_alpha"`
	Dropout      float64           `json:"lora_dropout"`
	Bias         string            `json:"bias"`
	DoRA         bool              `json:"use_dora"`
	RS           bool              `json:"use_rslora"`
	Targets      any               `json:"target_modules"`
	RankPattern  patterns[int]     `json:"rank_pattern"`
	AlphaPattern patterns[float64] `json:"alpha_pattern"`
	Init         any               `json:"init_lora_weights,omitempty"`
}

// patterns are values by patterns of module names, in the order of the file.
type patterns[V any] []pattern[V]

type pattern[V any] struct {
	key   string
	value V
}

// UnmarshalJSON keeps the order of the members. As in Python, a repeated key keeps its place and has the last value.
func (p *patterns[V]) UnmarshalJSON(data []byte) error {
	*p = nil
	d := json.NewDecoder(bytes.NewReader(data))
	open, err := d.Token()
	if err != nil || open == nil {
		return err
	}
	if open != json.Delim('{') {
		return fmt.Errorf("want an object of patterns, not %s", data)
	}
	at := map[string]int{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name := key.(string) // the decoder has checked the syntax
		i, ok := at[name]
		if !ok {
			i = len(*p)
			at[name], *p = i, append(*p, pattern[V]{key: name})
		}
		if err := d.Decode(&(*p)[i].value); err != nil {
			return fmt.Errorf("pattern %q: %w", name, err)
		}
	}
	return nil
}

// MarshalJSON writes the patterns in their order.
func (p patterns[V]) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, e := range p {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(e.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(e.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}'), nil
}

// pythonOnly is what Go's regexp accepts with another meaning than Python's re: [[:alpha:]] and {,n}.
var pythonOnly = regexp.MustCompile(`\[\[:|\{,`)

// of returns the value of the first pattern that matches a module's name or its end after a dot, as get_pattern_key of
// PEFT does (peft/utils/other.py): re.match(rf"(.*\.)?({key})$", module). Without one, the key that is the name counts.
func (p patterns[V]) of(module string, otherwise V) (V, error) {
	value := otherwise
	for _, e := range p {
		re, err := regexp.Compile(`^(?:.*\.)?(?:` + e.key + `)$`)
		if err == nil && pythonOnly.MatchString(e.key) {
			err = errors.New("it means something else in Python")
		}
		if err != nil {
			return value, fmt.Errorf("pattern %q cannot be matched (%w): write it without lookaround, back references, "+
				"[[: and {,n}, or list the modules", e.key, err)
		}
		if re.MatchString(module) {
			return e.value, nil
		}
		if e.key == module {
			value = e.value
		}
	}
	return value, nil
}

// patternsOf are patterns that give each module its value: names where these suffice, or else anchored expressions.
func patternsOf[V comparable](modules []string, values []V, otherwise V) patterns[V] {
	write := func(key func(string) string) (p patterns[V], ok bool) {
		for i, m := range modules {
			if values[i] != otherwise {
				p = append(p, pattern[V]{key(m), values[i]})
			}
		}
		for i, m := range modules {
			if v, err := p.of(m, otherwise); err != nil || v != values[i] {
				return p, false
			}
		}
		return p, true
	}
	p, ok := write(func(m string) string { return m })
	if !ok {
		p, _ = write(func(m string) string { return "^" + regexp.QuoteMeta(m) })
	}
	return p
}

// config describes the adapter to PEFT: the first layer's rank and alpha, and those that differ. Layers that PEFT would
// take for others are errors: it leaves out tensors that it has no place for without a word.
func (a *File) config() (*config, error) {
	c := &config{PeftType: "LORA", Base: a.Base, Bias: "none"}
	var targets []string
	var ranks []int
	var alphas []float64
	for i, l := range a.Entries {
		if why := l.foreignToPEFT(a.Entries[0]); why != "" {
			return nil, fmt.Errorf("layer %q: %s: give the file another name than %s, or make the adapter without such layers",
				l.Module, why, peftModel)
		}
		if i == 0 {
			c.Rank, c.Alpha, c.RS, c.DoRA = l.Rank, l.Alpha, l.RS, l.Kind == DoRA
		}
		targets, ranks, alphas = append(targets, l.Module), append(ranks, l.Rank), append(alphas, l.Alpha)
	}
	c.Targets = targets
	c.RankPattern, c.AlphaPattern = patternsOf(targets, ranks, c.Rank), patternsOf(targets, alphas, c.Alpha)
	return c, nil
}

// foreignToPEFT is why PEFT cannot have the layer in one adapter with the first one, or "".
func (l *Entry) foreignToPEFT(first Entry) string {
	switch {
	case l.Kind == Magnitude:
		return "PEFT has no adapters of kind magnitude"
	case l.Group > 1:
		return groupsInPEFT
	case l.Kind != first.Kind || l.RS != first.RS:
		return fmt.Sprintf("in PEFT all layers have one kind and one scaling, those of layer %q", first.Module)
	}
	return ""
}

// groupsInPEFT is why its adapters of grouped convolutions and ours differ: lora_A [r, in, taps…] has no groups there
// (_ConvNd.update_layer of peft/tuners/lora/layer.py), so that B·A is not of the weight's shape.
const groupsInPEFT = "PEFT's lora_A of a grouped convolution reads the channels of all groups, which its weight cannot"

// readConfig reads PEFT's settings.
func readConfig(path string) (*config, error) {
	data, err := memory.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("it has no settings: neither metadata of spark-dora nor PEFT's %s beside it", PEFTFile)
	}
	if err != nil {
		return nil, err
	}
	c := &config{}
	if err := memory.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := checkSettings(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// initializations are the values of init_lora_weights that leave the base weights alone.
var initializations = []any{nil, true, false, "gaussian", "eva", "orthogonal", "mica"}

// check refuses what is no LoRA, and what starts by subtracting the first adapter from the base weights, or rounds them: PiSSA,
// OLoRA, CorDA, LoRA-GA, LoftQ.
func (c *config) check() error {
	if c.PeftType != "LORA" {
		return fmt.Errorf("peft_type %q, only LORA is supported", c.PeftType)
	}
	for _, known := range initializations {
		if c.Init == known {
			return nil
		}
	}
	kind := fmt.Sprint(c.Init)
	if strings.EqualFold(kind, "loftq") {
		return fmt.Errorf("init_lora_weights %q rounds the base weights: %s", kind, mergeInPEFT)
	}
	return fmt.Errorf("init_lora_weights %q changes the base weights: save the adapter as one of the unchanged base, with "+
		"path_initial_model_for_weight_conversion of save_pretrained, or %s", kind, mergeInPEFT)
}

// layer fills in what PEFT's settings say of a layer.
func (c *config) layer(l *Entry, tensors map[string]Tensor) (err error) {
	l.Kind, l.RS = LoRA, c.RS
	if c.DoRA {
		l.Kind = DoRA
	}
	if l.Rank, err = c.RankPattern.of(l.Module, c.Rank); err != nil {
		return fmt.Errorf("%s: rank_pattern: %w", PEFTFile, err)
	}
	if l.Alpha, err = c.AlphaPattern.of(l.Module, c.Alpha); err != nil {
		return fmt.Errorf("%s: alpha_pattern: %w", PEFTFile, err)
	}
	if l.Group > 1 {
		return fmt.Errorf("layer %q: %s: leave it out with exclude_modules", l.Module, groupsInPEFT)
	}
	for name, t := range tensors {
		module, suffix, _ := Split(name)
		if module == l.Module && suffix+".weight" == suffixA && len(t.Shape) > 0 && t.Shape[0] != l.Rank {
			return fmt.Errorf("layer %q: lora_A has rank %s, %s says %d",
				l.Module, strconv.Itoa(t.Shape[0]), PEFTFile, l.Rank)
		}
	}
	return nil
}
