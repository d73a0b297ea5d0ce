package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Names of the files of a program directory.
const (
	ProgramFile = "program.json"
	WeightsFile = "weights.bin"
	PTXFile     = "kernels.ptx"
	CubinFile   = "kernels.cubin"
)

// Read reads a program from a directory: program.json, weights.bin and a folder for each variant. Errors name the file.
func Read(dir fs.FS) (*Program, error) {
	raw, err := memory.ReadIn(dir, ProgramFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; give a directory that spark-compile wrote", err)
	}
	if err != nil {
		return nil, err
	}
	var p Program
	if err := memory.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", ProgramFile, err)
	}
	if p.Format != FormatVersion {
		return nil, fmt.Errorf("%s: format version %d, this runtime reads %d: compile the model again", ProgramFile, p.Format, FormatVersion)
	}
	if err := p.checkIdentity(raw); err != nil {
		return nil, err
	}
	if p.Weights, err = p.file(dir, WeightsFile); err != nil {
		return nil, err
	}
	for i := range p.Variants {
		v := &p.Variants[i]
		text, err := p.file(dir, path.Join(v.Target, PTXFile))
		if err != nil {
			return nil, err
		}
		v.PTX = string(text)
		name := path.Join(v.Target, CubinFile)
		if p.Digests[name] == "" {
			continue // a file of that name would not be the compiler's
		}
		if v.Cubin, err = p.file(dir, name); err != nil {
			return nil, err
		}
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w: compile the model again", ProgramFile, err)
	}
	return &p, nil
}

// maxParamBytes is the space for a kernel's parameters that every target has (PTX ISA, kernel function parameters).
const maxParamBytes = 4096

// Validate checks what a loader relies on, such as that indices and ranges are inside their tables.
func (p *Program) Validate() error {
	if len(p.Variants) == 0 {
		return errors.New("no variant")
	}
	for _, list := range [][]Port{p.Inputs, p.Outputs} {
		for _, q := range list {
			if err := q.validate(); err != nil {
				return err
			}
		}
	}
	for i := range p.Variants {
		if err := p.Variants[i].validate(p); err != nil {
			return fmt.Errorf("variant %s: %w", p.Variants[i].Target, err)
		}
	}
	if p.Adapters != nil {
		return p.Adapters.validate(p)
	}
	return nil
}

// validate checks that accessors of slices stay inside the port.
func (p *Port) validate() error {
	elements := 1
	for _, d := range p.Shape {
		if d < 0 || d > 0 && elements > mostBytes/d {
			return fmt.Errorf("%q: shape %v is negative or too large", p.Name, p.Shape)
		}
		elements *= d
	}
	if npy.Bits(p.DType) == 0 {
		return fmt.Errorf("%q: unknown element type %q", p.Name, p.DType)
	}
	for _, s := range p.Slices {
		if s.Start < 0 || s.Stop < s.Start || s.Stop > elements || s.Every != 0 && (s.Stop > s.Every || elements%s.Every != 0) {
			return fmt.Errorf("%q: slice %q is %d to %d of %d elements", p.Name, s.Name, s.Start, s.Stop, elements)
		}
	}
	return nil
}

// bytes is what the port takes in a buffer.
func (p *Port) bytes() int { return (numel(p.Shape)*npy.Bits(p.DType) + 7) / 8 }

// mostBytes is more than any device has.
const mostBytes = 1 << 40

func (v *Variant) validate(p *Program) error {
	if v.ArenaBytes < 0 || v.ArenaBytes > mostBytes {
		return fmt.Errorf("an arena of %d bytes", v.ArenaBytes)
	}
	names := map[BufferKind]map[string]bool{InputBuffer: {}, OutputBuffer: {}, StateBuffer: {}}
	for i, b := range v.Buffers {
		limit := mostBytes
		switch b.Kind {
		case ConstantBuffer:
			limit = len(p.Weights)
		case ArenaBuffer:
			limit = v.ArenaBytes
		case InputBuffer, OutputBuffer:
			names[b.Kind][b.Name] = true
		case StateBuffer, VariableBuffer:
			if names[StateBuffer][b.Name] {
				return fmt.Errorf("buffer %d: a second state or variable %q", i, b.Name)
			}
			names[StateBuffer][b.Name] = true
			if b.Kind == VariableBuffer {
				limit = len(p.Weights)
			}
		default:
			return fmt.Errorf("buffer %d: unknown kind %q", i, b.Kind)
		}
		if b.Bytes < 0 || b.Offset < 0 || b.Bytes > limit || b.Offset > limit-b.Bytes {
			return fmt.Errorf("buffer %d (%s): range outside its %s", i, b.Name, b.Kind)
		}
	}
	for _, s := range p.States {
		if !names[StateBuffer][s.Input] {
			return fmt.Errorf("state %q has no buffer of kind state or variable", s.Input)
		}
		if err := v.checkDelay(&s); err != nil {
			return fmt.Errorf("state %q: %w", s.Input, err)
		}
		if s.Output != "" && names[OutputBuffer][s.Output] {
			return fmt.Errorf("state %q: output %q has a buffer of its own, or is the new value of another state too", s.Input, s.Output)
		}
		names[InputBuffer][s.Input], names[OutputBuffer][s.Output] = true, true
	}
	for _, in := range p.Inputs {
		if !names[InputBuffer][in.Name] {
			return fmt.Errorf("input %q has no buffer", in.Name)
		}
	}
	for _, out := range p.Outputs {
		if !names[OutputBuffer][out.Name] {
			return fmt.Errorf("output %q has no buffer", out.Name)
		}
	}
	if err := v.checkSizes(p); err != nil {
		return err
	}
	entries := map[string]bool{}
	for _, e := range v.Entries {
		if entries[e.Name] {
			return fmt.Errorf("a second entry %s", e.Name)
		}
		entries[e.Name] = true
		n := int64(len(e.Launches))
		if err := memory.Default().Check(n*n/8, fmt.Sprintf("entry %s, whose %d launches may wait for each other,", e.Name, n)); err != nil {
			return err
		}
		for i := range e.Launches {
			if err := v.validateLaunch(&e.Launches[i], i, len(p.Weights)); err != nil {
				return fmt.Errorf("entry %s: launch %d: %w", e.Name, i, err)
			}
		}
		if err := v.checkOrder(e.Launches); err != nil {
			return fmt.Errorf("entry %s: %w", e.Name, err)
		}
	}
	return nil
}

// checkSizes reports a port's buffer that has not the port's size, and sizes that add up to more than any device has.
func (v *Variant) checkSizes(p *Program) error {
	ports := map[string]*Port{}
	for _, list := range [][]Port{p.Inputs, p.Outputs} {
		for i := range list {
			ports[list[i].Name] = &list[i]
		}
	}
	all := v.ArenaBytes
	for i, b := range v.Buffers {
		if b.Kind == ConstantBuffer || b.Kind == ArenaBuffer {
			continue
		}
		if q := ports[b.Name]; q != nil && q.bytes() != b.Bytes {
			return fmt.Errorf("buffer %d (%s): it has %d bytes, %v needs %d", i, b.Name, b.Bytes, *q, q.bytes())
		}
		delay := 0
		if s := p.state(b.Name); s != nil {
			delay = min(max(s.Delay, 0), mostDelay)
		}
		if all += b.Bytes * (1 + delay); all > mostBytes {
			return fmt.Errorf("buffers of %d bytes and more, which no device has", all)
		}
	}
	return nil
}

// mostDelay is more than any history is long.
const mostDelay = 1 << 12

// checkDelay reports a state with a delay whose two buffers cannot take turns.
func (v *Variant) checkDelay(s *State) error {
	if s.Delay < 0 || s.Delay > mostDelay {
		return fmt.Errorf("a delay of %d runs: want 0 to %d", s.Delay, mostDelay)
	}
	if s.Delay < 2 {
		return nil
	}
	size := func(name string) int {
		i := slices.IndexFunc(v.Buffers, func(b Buffer) bool { return b.Kind == StateBuffer && b.Name == name })
		if i < 0 {
			return -1
		}
		return v.Buffers[i].Bytes
	}
	if in, out := size(s.Input), size(s.Output); in < 0 || in != out {
		return fmt.Errorf("with a delay of %d, it and its new value %q need buffers of kind state of one size", s.Delay, s.Output)
	}
	return nil
}

func (v *Variant) validateLaunch(l *Launch, index, weights int) error {
	inside := func(a Access) error {
		if a.Buffer < 0 || a.Buffer >= len(v.Buffers) {
			return fmt.Errorf("there is no buffer %d", a.Buffer)
		}
		b := v.Buffers[a.Buffer]
		if a.Bytes < 0 || a.Offset < 0 || a.Bytes > b.Bytes || a.Offset > b.Bytes-a.Bytes {
			return fmt.Errorf("range [%d,+%d) outside buffer %s of %d bytes", a.Offset, a.Bytes, b.Name, b.Bytes)
		}
		return nil
	}
	declared := slices.Concat(l.Reads, l.Writes)
	for _, a := range declared {
		if err := inside(a); err != nil {
			return err
		}
	}
	for _, a := range l.Writes {
		if b := v.Buffers[a.Buffer]; b.Kind == ConstantBuffer {
			return fmt.Errorf("it writes constant %s", b.Name)
		}
	}
	if a := l.Prefetch; a != nil {
		if err := inside(Access{a.Buffer, a.Offset, 0}); err != nil {
			return err
		}
		switch b := v.Buffers[a.Buffer]; {
		case b.Kind != ConstantBuffer:
			return fmt.Errorf("it prefetches %s %s, which a launch may change", b.Kind, b.Name)
		case a.Bytes < 0 || a.Bytes > weights-b.Offset-a.Offset:
			return fmt.Errorf("it prefetches %d bytes from constant %s on, outside %d bytes of weights", a.Bytes, b.Name, weights)
		case l.prefetchSize() < 0:
			return fmt.Errorf("it prefetches %d bytes from constant %s on, and no parameter says so", a.Bytes, b.Name)
		}
		declared = append(declared, *a)
	}
	if l.Priority < -5 || l.Priority > 0 {
		return fmt.Errorf("priority %d is outside -5 to 0", l.Priority)
	}
	for _, a := range l.After {
		if a < 0 || a >= index {
			return fmt.Errorf("After names launch %d, which does not come before it", a)
		}
	}
	if c := l.Copy; c != nil {
		if b := c.Dst.Buffer; b >= 0 && b < len(v.Buffers) && v.Buffers[b].Kind == ConstantBuffer {
			return fmt.Errorf("it writes constant %s", v.Buffers[b].Name)
		}
		return errors.Join(inside(Access{c.Src.Buffer, c.Src.Offset, c.Bytes}), inside(Access{c.Dst.Buffer, c.Dst.Offset, c.Bytes}))
	}
	if l.Kernel == "" {
		return errors.New("neither a kernel nor a copy")
	}
	params := 0
	for i, q := range l.Params {
		switch q.Bytes {
		case 1, 2, 4, 8:
		default:
			return fmt.Errorf("parameter %d has %d bytes, want 1, 2, 4 or 8", i, q.Bytes)
		}
		if params += q.Bytes; params > maxParamBytes {
			return fmt.Errorf("more than %d bytes of parameters", maxParamBytes)
		}
		if q.Buffer < 0 {
			if q.Bytes < 8 && q.Value>>(8*q.Bytes) != 0 {
				return fmt.Errorf("parameter %d: %#x has more than %d bytes", i, q.Value, q.Bytes)
			}
			continue
		}
		if q.Bytes != 8 {
			return fmt.Errorf("parameter %d: a pointer of %d bytes", i, q.Bytes)
		}
		if err := inside(Access{q.Buffer, q.Offset, 0}); err != nil {
			return err
		}
		if !slices.ContainsFunc(declared, func(a Access) bool { return a.Buffer == q.Buffer }) {
			return fmt.Errorf("parameter %d points to buffer %s, which the launch does not declare", i, v.Buffers[q.Buffer].Name)
		}
	}
	if l.Shared < 0 || l.Shared > mostShared {
		return fmt.Errorf("%d bytes of shared memory is negative or more than the %d of any device", l.Shared, mostShared)
	}
	for d := range 3 {
		if l.Grid[d] < 1 || l.Block[d] < 1 || l.Grid[d] > mostBlocks[d] || l.Block[d] > mostThreads[d] {
			return fmt.Errorf("grid %v and block %v must be positive, and at most %v and %v", l.Grid, l.Block, mostBlocks, mostThreads)
		}
	}
	if threads := l.Block[0] * l.Block[1] * l.Block[2]; threads > mostThreads[0] {
		return fmt.Errorf("block %v has %d threads, more than %d", l.Block, threads, mostThreads[0])
	}
	return nil
}

// What a launch may ask of every device (CUDA programming guide, table of compute capabilities).
var (
	mostBlocks  = [3]int{1<<31 - 1, 65535, 65535}
	mostThreads = [3]int{1024, 1024, 64}
)

const mostShared = 227 << 10

// Variant returns the variant for an architecture: its own, else the newest older one, since PTX runs on every later
// architecture. "" takes the first.
func (p *Program) Variant(arch string) (*Variant, error) {
	if arch == "" {
		return &p.Variants[0], nil
	}
	var have []string
	for _, v := range p.Variants {
		have = append(have, v.Target)
	}
	i, err := target.Newest(arch, have)
	if err == nil && i < 0 {
		err = fmt.Errorf("%w: %s has nothing that runs on %s (it has %v): spark-compile --target %s makes that", hal.ErrNoVariant, p.Model, arch, have, arch)
	}
	if err != nil {
		return nil, err
	}
	return &p.Variants[i], nil
}
