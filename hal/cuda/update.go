package cuda

import (
	"fmt"
	goruntime "runtime"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
)

// varying is a node of the captured graph whose parameters may change. The captured graph lives as long as there are
// any: its nodes name those of the instantiated one.
type varying struct {
	op             hal.Op
	node, function uintptr
}

// kernelNode is CUDA_KERNEL_NODE_PARAMS, version 2 (CUDA Driver API, graph management).
type kernelNode struct {
	function    uintptr
	grid, block [3]uint32
	shared      uint32
	_           uint32
	params      uintptr
	extra       uintptr
	kernel      uintptr
	context     uintptr
}

// Update gives a kernel's node of the instantiated graph other parameters; its attributes stay.
func (g *graph) Update(i int, op hal.Op) error {
	v := g.varying[i]
	switch {
	case v == nil:
		return fmt.Errorf("op %d does not vary", i)
	case !v.op.Moves(&op):
		return fmt.Errorf("op %d (%s): an update changes parameters and ranges alone", i, v.op.Kernel)
	}
	return g.device.do(func() error {
		if err := g.settled(); err != nil {
			return err
		}
		n := &kernelNode{function: v.function, shared: uint32(op.Shared)}
		for k := range 3 {
			n.grid[k], n.block[k] = uint32(op.Grid[k]), uint32(op.Block[k])
		}
		p := pointersTo(op.Params)
		n.params = addr(&p.at[0])
		err := g.device.call("cuGraphExecKernelNodeSetParams", g.exec, v.node, addr(n))
		goruntime.KeepAlive(p)
		goruntime.KeepAlive(n)
		return err
	})
}

// parameters are a kernel's, as the driver takes them: a pointer to each, then a null pointer.
type parameters struct {
	values []uint64
	at     []uintptr
}

func pointersTo(params []uint64) *parameters {
	p := &parameters{slices.Clone(params), make([]uintptr, len(params)+1)}
	for i := range p.values {
		p.at[i] = addr(&p.values[i])
	}
	return p
}
