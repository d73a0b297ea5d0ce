package codegen_test

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// network is a graph of regions whose activations travel as NVFP4.
type network struct{ *kerneltest.Graph }

// value is an activation between regions: codes and scales, or one value.
type value struct {
	v, scales *ir.Value
	scale     float64 // of the whole tensor
}

const step = 0.02 // the f32 scale of every activation

// region is a body under construction.
type region struct{ *kerneltest.Region }

func (n network) region(family string, members int) region {
	return region{n.Region(family).Members(members)}
}

// constant is a weight: one for each member.
func (r region) constant(t ir.Type, draw kerneltest.Draw) *ir.Value {
	return r.Fill(t, draw, true, r.HasMembers())
}

func normal(size float64) kerneltest.Draw { return kerneltest.Numbers(ir.Float32, size) }

// positive numbers are for scales.
func positive(size, least float64) kerneltest.Draw {
	return func(r *rand.Rand, _ int) float64 { return size * (least + r.Float64()) }
}

// read is an activation as f32.
func (r region) read(x value, batched bool) *ir.Value {
	v := r.Read(x.v, batched)
	if x.scales == nil {
		return r.Cast(v, ir.Float32)
	}
	return r.Dequantise(v.Type.Rank()-1, 16, v, x.scales)
}

// weights are e2m1 with block scales along an axis.
func (r region) weights(axis int, shape ...int) *ir.Value {
	w := r.constant(ir.T(ir.Float4E2M1, shape...), normal(2))
	blocks := append([]int{}, shape...)
	blocks[axis] = (blocks[axis] + 15) / 16
	return r.Dequantise(axis, 16, w, r.Drawing(ir.T(ir.Float8E4M3FN, blocks...), positive(1, 0.1), true, r.HasMembers()))
}

// scaled applies what follows an anchor: the scales of activation and channels, and a bias.
func (r region) scaled(y *ir.Value, channels, k int, x value) *ir.Value {
	size := 1 / math.Sqrt(float64(k))
	if x.scales != nil {
		size *= x.scale
	}
	y = r.Add("Mul", nil, y, r.constant(ir.T(ir.Float32, channels), positive(size, 0.2)))
	return r.Add("Add", nil, y, r.constant(ir.T(ir.Float32, channels), normal(0.1)))
}

func (r region) conv(x value, batched bool, out, window, stride, group int) *ir.Value {
	in := r.read(x, batched)
	c := in.Type.Shape[3]
	pad := window / 2
	attrs := ir.Attrs{"strides": []int{stride, stride}, "pads": []int{pad, pad, pad, pad}, "dilations": []int{1, 1}, "group": group, "layout": "NHWC"}
	shape := []int{out, c / group, window, window}
	var w *ir.Value
	if x.scales != nil {
		w = r.weights(1, shape...)
	} else {
		w = r.Cast(r.constant(ir.T(ir.Float16, shape...), normal(1)), ir.Float32)
	}
	return r.scaled(r.Add("Conv", attrs, in, w), out, c/group*window*window, x)
}

func (r region) matmul(x value, n int) *ir.Value {
	in := r.read(x, false)
	k := in.Type.Shape[in.Type.Rank()-1]
	return r.scaled(r.Add("MatMul", nil, in, r.weights(0, k, n)), n, k, x)
}

// quantised ends the body with BlockQuantize.
func (r region) quantised(y *ir.Value) value {
	outs := r.FinishBlocks(y, step).Outputs
	return value{outs[0], outs[1], step}
}

// stored ends it with a value of a type.
func (r region) stored(y *ir.Value, d ir.DType) value {
	return value{v: r.Finish(r.Cast(y, d)).Outputs[0]}
}

// view is a view of codes and one of scales.
func (n network) view(op string, attrs func(channels int) ir.Attrs, xs ...value) value {
	part := func(pick func(value) *ir.Value) *ir.Value {
		r := n.region("view", 0)
		var in []*ir.Value
		for _, x := range xs {
			in = append(in, r.Read(pick(x), false))
		}
		shape := pick(xs[0]).Type.Shape
		return r.Finish(r.Add(op, attrs(shape[len(shape)-1]), in...)).Outputs[0]
	}
	return value{part(func(x value) *ir.Value { return x.v }), part(func(x value) *ir.Value { return x.scales }), step}
}

// blockNetwork passes NVFP4 from every kind of producer, directly and through views, to products that multiply it.
func blockNetwork(t *testing.T) (network, int) {
	n := network{kerneltest.NewGraph(t, "blocks")}
	image := value{v: n.Drawn(ir.T(ir.Float16, 1, 16, 12, 32), normal(1), false)}

	r := n.region("contraction", 0)
	a := r.quantised(r.Add("Gelu", nil, r.conv(image, false, 112, 1, 1, 1)))
	r = n.region("contraction", 0)
	b := r.quantised(r.Add("Relu", nil, r.conv(a, false, 64, 3, 2, 1))) // [1,8,6,64]
	r = n.region("contraction", 0)
	c := r.stored(r.conv(b, false, 64, 1, 1, 1), ir.Float16)
	r = n.region("window", 0)
	d := r.quantised(r.conv(c, false, 64, 3, 1, 64))
	r = n.region("contraction", 0)
	e := r.stored(r.Add("Add", nil, r.conv(d, false, 64, 1, 1, 1), r.read(c, false)), ir.Float16)

	rows := func(x value) value { // [1,48,64]
		return n.view("Reshape", func(last int) ir.Attrs { return ir.Attrs{"shape": []int{1, 48, last}} }, x)
	}
	r = n.region("loop", 0)
	gain, bias := r.constant(ir.T(ir.Float32, 64), normal(1)), r.constant(ir.T(ir.Float32, 64), normal(1))
	f := rows(r.quantised(r.Add("LayerNorm", ir.Attrs{"axis": 3}, r.read(e, false), gain, bias)))
	joined := n.view("Concat", func(int) ir.Attrs { return ir.Attrs{"axis": 1} }, f, rows(b)) // [1,96,64]
	r = n.region("contraction", 0)
	h := r.quantised(r.Add("Gelu", nil, r.matmul(joined, 192)))
	part := n.view("Slice", func(last int) ir.Attrs {
		return ir.Attrs{"starts": []int{0, 48, 0}, "sizes": []int{1, 48, last}, "steps": []int{1, 1, 1}}
	}, h)
	r = n.region("contraction", 0)
	rest := r.stored(r.matmul(part, 40), ir.Float32)
	r = n.region("contraction", 2) // two members read one value
	y := r.stored(r.matmul(h, 64), ir.Float32)
	n.Outputs = []*ir.Value{y.v, rest.v}
	return n, 6
}

// TestBlocksTravelThroughAProgram runs the network on the CPU device, with all checks, against the evaluator.
func TestBlocksTravelThroughAProgram(t *testing.T) {
	ctx := context.Background()
	n, products := blockNetwork(t)
	p, r := n.Program(families.New(nil), target.Default())
	for _, l := range r.Variant.Entries[0].Launches {
		require.Nil(t, l.Copy, "views alias, and what is joined is written in place")
	}
	kernels := 0
	for _, k := range r.Variant.Kernels {
		if strings.HasSuffix(k.Name, "e2m1") || strings.Contains(k.Name, "e2m1_") {
			kernels += k.Launches
		}
	}
	require.Equal(t, products, kernels)

	device, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	defer device.Close()
	m, err := runtime.NewModel(ctx, p, device, runtime.ModelOptions{})
	require.NoError(t, err)
	defer m.Close()
	s, err := m.NewSession(ctx, runtime.SessionOptions{})
	require.NoError(t, err)
	defer s.Close()
	x := n.Data[n.Inputs[0]]
	copy(s.Input(p.Inputs[0].Name), x.Data)
	require.NoError(t, s.Run(ctx))
	want, err := ir.Evaluate(ctx, n.Graph.Graph, map[string]*ir.Array{p.Inputs[0].Name: x.Array()}, ir.EvalOptions{Round: true})
	require.NoError(t, err)
	for _, out := range n.Outputs {
		got, err := ir.NewTensor(out.Type, s.Output(out.Name))
		require.NoError(t, err)
		var d, size float64
		w := want[out.Name].Floats()
		for i, g := range got.Array().Floats() {
			d += (g - w[i]) * (g - w[i])
			size += w[i] * w[i]
		}
		t.Logf("%s: relative L2 %.2g", out.Name, math.Sqrt(d/size))
		// f32 rounding alone is below 1e-6; a sum that falls to the other side of the middle of two codes is some
		// 1e-3 of its row.
		require.Less(t, math.Sqrt(d/size), 1e-3, out.Name)
	}
}

// TestBlocksTakeTheirBits: codes take four bits in the arena, and a scale eight for each 16.
func TestBlocksTakeTheirBits(t *testing.T) {
	n, _ := blockNetwork(t)
	_, r := n.Program(families.New(nil), target.Default())
	sizes := map[string]int{}
	for _, b := range r.Variant.Buffers {
		sizes[b.Name] = b.Bytes
	}
	first := n.Nodes[0].Outputs
	require.Equal(t, 16*12*112/2, sizes[first[0].Name])
	require.Equal(t, 16*12*112/16, sizes[first[1].Name])
}

// TestMachineCodeOfBlocks: in the code of the program for sm_121 every product of NVFP4 is an OMMA, every producer
// converts in hardware, and nothing spills.
func TestMachineCodeOfBlocks(t *testing.T) {
	ctx := context.Background()
	tool, err := toolchain.FindPtxas(ctx)
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	n, _ := blockNetwork(t)
	tgt := target.Default()
	_, r := n.Program(families.New(nil), tgt)
	out, err := tool.Assemble(ctx, r.Variant.PTX, tgt.Name)
	require.NoError(t, err)
	for _, u := range out.Usage {
		require.Zero(t, u.Spills, u.Kernel)
	}
	sass, err := tool.Disassemble(ctx, out.Cubin)
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	functions := regexp.MustCompile(`(?m)^\s*\.section\s+\.text\.(\w+)`).FindAllStringSubmatchIndex(sass, -1)
	require.Len(t, functions, len(r.Variant.Kernels))
	for i, f := range functions {
		end := len(sass)
		if i+1 < len(functions) {
			end = functions[i+1][0]
		}
		name, code := sass[f[2]:f[3]], sass[f[0]:end]
		if strings.Contains(name, "_e2m1") {
			multiplies := regexp.MustCompile(`\b[A-Z]*MMA\.[A-Z0-9.]+`).FindAllString(code, -1)
			require.NotEmpty(t, multiplies, name)
			for _, m := range multiplies {
				require.Equal(t, "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", m, name)
			}
		}
	}
	require.Equal(t, strings.Count(r.Variant.PTX, "cvt.rn.satfinite.e2m1x2.f32") > 0, strings.Contains(sass, "F2FP.SATFINITE.E2M1"))
}
