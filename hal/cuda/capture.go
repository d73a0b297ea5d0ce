//go:build linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	goruntime "runtime"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
)

// capture records ops on a stream. By default each op follows the one recorded before it; where After says otherwise, the
// capture sets what the next op depends on.
type capture struct {
	*graph
	ops    []hal.Op
	after  [][]int // by op: the nodes that it follows
	chain  []bool  // the op follows only the node recorded before it, which is the stream's default
	wanted []bool  // another op needs the op's node
	nodes  []uintptr
}

func newCapture(g *graph, ops []hal.Op) (*capture, error) {
	n := len(ops)
	c := &capture{graph: g, ops: ops, after: make([][]int, n), chain: make([]bool, n), wanted: make([]bool, n), nodes: make([]uintptr, n)}
	last := []int{}
	for i := range ops {
		for _, j := range ops[i].After {
			switch {
			case j < 0 || j >= i:
				return nil, fmt.Errorf("op %d (%s): its After names op %d, which is not an earlier one", i, ops[i].Kernel, j)
			case isNode(&ops[j]):
				c.after[i] = append(c.after[i], j)
			default:
				c.after[i] = append(c.after[i], c.after[j]...)
			}
		}
		slices.Sort(c.after[i])
		c.after[i] = slices.Compact(c.after[i])
		if !isNode(&ops[i]) {
			continue
		}
		if c.chain[i] = slices.Equal(c.after[i], last); !c.chain[i] {
			for _, j := range c.after[i] {
				c.wanted[j] = true
			}
		}
		last = []int{i}
	}
	return c, nil
}

// isNode reports whether an op is a node of the graph; a copy of no bytes is none.
func isNode(op *hal.Op) bool { return op.Kernel != "" || op.Bytes > 0 }

func (c *capture) record(i int, fn uintptr) error {
	op := &c.ops[i]
	if !isNode(op) {
		return nil
	}
	if !c.chain[i] {
		if err := c.comesAfter(c.after[i]); err != nil {
			return err
		}
	}
	// A programmatic edge joins two kernels; after a copy the edge is a plain one.
	dependent := op.Dependent && c.chain[i] && len(c.after[i]) > 0 && c.ops[c.after[i][0]].Kernel != ""
	if err := c.launch(op, fn, dependent); err != nil || !c.wanted[i] {
		return err
	}
	var err error
	c.nodes[i], err = c.node()
	return err
}

// comesAfter sets the nodes that the next op follows. A branch may be left open: dependencies that are replaced need not be
// joined (CUDA Driver API, cuStreamUpdateCaptureDependencies).
func (c *capture) comesAfter(after []int) error {
	const setDependencies = 1 // CU_STREAM_SET_CAPTURE_DEPENDENCIES
	nodes := make([]uintptr, len(after)+1)
	for k, j := range after {
		nodes[k] = c.nodes[j]
	}
	defer goruntime.KeepAlive(nodes)
	return c.device.call("cuStreamUpdateCaptureDependencies", c.stream, addr(&nodes[0]), uintptr(len(after)), setDependencies)
}

// node returns the node recorded last, the only one that the next op would follow.
func (c *capture) node() (uintptr, error) {
	var info struct {
		status   int32
		id       uint64
		captured uintptr
		nodes    *uintptr
		count    uint64
	}
	defer goruntime.KeepAlive(&info)
	if err := c.device.call("cuStreamGetCaptureInfo", c.stream, addr(&info.status), addr(&info.id), addr(&info.captured),
		addr(&info.nodes), addr(&info.count)); err != nil {
		return 0, err
	}
	if info.count != 1 {
		return 0, fmt.Errorf("cuStreamGetCaptureInfo: the next op would follow %d nodes instead of the one just recorded", info.count)
	}
	return *info.nodes, nil
}
