package passes

import "github.com/spark-compile/spark-compile/ir"

var _ = register(Pass{
	Name:    "dce",
	Summary: "remove nodes that no output depends on",
	Run: func(_ *Context, g *ir.Graph) error {
		g.RemoveDead()
		return nil
	},
})
