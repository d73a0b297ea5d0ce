package cuda

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
)

// capture records ops on a stream. By default each op follows the one recorded before it; where After says otherwise,
// the capture sets what the next op depends on.
type capture struct {
	*graph
	ops     []hal.Op
	after   [][]int // by op: the nodes that it follows
	inOrder []bool  // the op follows only the node recorded before it, which is the stream's default
	early   []bool  // by a programmatic edge, where they are wanted
	nodes   []uintptr
}

func newCapture(g *graph, ops []hal.Op, dependent bool) (*capture, error) {
	n := len(ops)
	c := &capture{graph: g, ops: ops, after: make([][]int, n), inOrder: make([]bool, n), early: make([]bool, n), nodes: make([]uintptr, n)}
	g.wanted = 0
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
		c.inOrder[i] = slices.Equal(c.after[i], last)
		// A programmatic edge joins two kernels; after a copy the edge is a plain one.
		if ops[i].Dependent && c.inOrder[i] && len(c.after[i]) > 0 && ops[c.after[i][0]].Kernel != "" {
			c.early[i] = dependent
			g.wanted++
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
	if !c.inOrder[i] {
		if err := c.comesAfter(c.after[i]); err != nil {
			return err
		}
	}
	if err := c.launch(op, fn, c.early[i]); err != nil {
		return err
	}
	var err error
	c.nodes[i], err = c.node()
	return err
}

// varies are the ops that may change between runs.
func (c *capture) varies(functions []uintptr) map[int]*varying {
	all := map[int]*varying{}
	for i, op := range c.ops {
		if op.Varies && op.Kernel != "" {
			all[i] = &varying{op, c.nodes[i], functions[i]}
		}
	}
	return all
}

// edgeData is CUgraphEdgeData.
type edgeData struct{ _, _, kind, _, _, _, _, _ byte } // follows the two ports

const programmaticEdge = 1 // CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC

// confirm reads the edges of the captured graph: they are those of After, or it is an error, since kernels would read
// what is not there yet. How many of them are programmatic is a matter of time alone, and counted.
func (c *capture) confirm(captured uintptr) error {
	c.programmatic = -1
	if c.device.entries["cuGraphGetEdges"] == 0 {
		return nil
	}
	c.programmatic = 0
	type edge struct{ from, to uintptr }
	want := map[edge]bool{}
	for i := range c.ops {
		if isNode(&c.ops[i]) {
			for _, j := range c.after[i] {
				want[edge{c.nodes[j], c.nodes[i]}] = c.early[i]
			}
		}
	}
	if len(want) == 0 {
		return nil
	}
	count := uint64(len(want) + 1) // one more, so that there are none too many
	from, to, data := make([]uintptr, count), make([]uintptr, count), make([]edgeData, count)
	if err := c.device.call("cuGraphGetEdges", captured, addr(&from[0]), addr(&to[0]), addr(&data[0]), addr(&count)); err != nil {
		return err
	}
	count = min(count, uint64(len(from)))
	for i := range count {
		early, ok := want[edge{from[i], to[i]}]
		programmatic := data[i].kind == programmaticEdge
		switch {
		case !ok:
			return fmt.Errorf("%w: an edge that the launch list does not have", errCapture)
		case programmatic && !early:
			return fmt.Errorf("%w: a programmatic edge to a kernel that must not begin early", errCapture)
		case programmatic:
			c.programmatic++
		}
		delete(want, edge{from[i], to[i]})
	}
	if len(want) > 0 {
		return fmt.Errorf("%w: %d edges of the launch list are missing", errCapture, len(want))
	}
	return nil
}

var errCapture = errors.New("the driver captured another graph than the launch list: please report it with the driver's version")

// comesAfter sets the nodes that the next op follows. A branch may be left open: dependencies that are replaced need
// not be joined (CUDA Driver API, cuStreamUpdateCaptureDependencies).
func (c *capture) comesAfter(after []int) error {
	const setDependencies = 1 // CU_STREAM_SET_CAPTURE_DEPENDENCIES
	nodes := make([]uintptr, len(after)+1)
	for k, j := range after {
		nodes[k] = c.nodes[j]
	}
	defer goruntime.KeepAlive(nodes)
	return c.device.call("cuStreamUpdateCaptureDependencies", c.stream, addr(&nodes[0]), uintptr(len(after)), setDependencies)
}

// node returns the node recorded last, the only one that the next op would follow. Version 2 of the query fails where
// the edge to the next op would have data (CUDA_ERROR_LOSSY_QUERY), as a programmatic edge has; version 3, of CUDA
// 12.3, returns the data.
func (c *capture) node() (uintptr, error) {
	var info struct {
		status   int32
		id       uint64
		captured uintptr
		nodes    *uintptr
		edges    *edgeData
		count    uint64
	}
	defer goruntime.KeepAlive(&info)
	var err error
	if c.device.entries[captureInfo3] != 0 {
		err = c.device.call(captureInfo3, c.stream, addr(&info.status), addr(&info.id), addr(&info.captured), addr(&info.nodes), addr(&info.edges),
			addr(&info.count))
	} else {
		err = c.device.call("cuStreamGetCaptureInfo", c.stream, addr(&info.status), addr(&info.id), addr(&info.captured), addr(&info.nodes),
			addr(&info.count))
	}
	if err != nil {
		return 0, err
	}
	if info.count != 1 {
		return 0, fmt.Errorf("cuStreamGetCaptureInfo: the next op would follow %d nodes instead of the one just recorded", info.count)
	}
	return *info.nodes, nil
}
