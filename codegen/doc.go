// Package codegen turns a graph of Regions into a runtime.Variant: every region is lowered to a kernel of a family,
// values get places in buffers (views alias, concatenations are written in place), the launch list gets its hazards,
// and the arena is planned.
//
//	place.go     value → storage and offset: aliasing of views, outputs, concatenations
//	driver.go    regions → kernel.Spec → launches, equal kernels shared
//	plan.go      arena offsets from live ranges
//	finish.go    numbering of buffers, launch lists with their hazards
//	weights.go   the blob of constants, equal contents stored once
//
// Kernel families live in codegen/contraction, codegen/window and codegen/loop; they meet the driver in codegen/kernel.
package codegen
