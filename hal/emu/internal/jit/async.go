//go:build linux && amd64

package jit

func (e *emitter) copyAsync(in *Inst) bool { return false }
func (e *emitter) commit(in *Inst) bool    { return false }
func (e *emitter) waitGroup(in *Inst) bool { return false }
