package cuda

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Frames of a camera are written over each other: a kernel must read the second one, though it has read the first at
// the same address. The probe does just that, for memory of which a GPU's L1 and L2 keep a line, many lines, and more
// than L1 holds.
var rereadBytes = []int{4, 128, 64 << 10, 256 << 10}

const (
	rereadsAtOpen = 20 // rounds of each size when a device is opened
	rereadThreads = 128
)

var errStale = errors.New("a kernel read what the host had written before, not what it has written since")

// smallRereads are the sizes that are tried when a device is opened, in a millisecond or two.
const smallRereads = 3

// Rereads has a kernel read memory that host and device share, the host rewrite it, and the kernel read it again, for
// so many rounds of several sizes. It is nil where the kernel always read the last that was written, or memory is not
// shared.
func (d *Device) Rereads(ctx context.Context, rounds int) error {
	if d.shared.kind == copied {
		return nil
	}
	return d.rereads(ctx, d.shared.kind, rereadBytes, rounds)
}

func (d *Device) rereads(ctx context.Context, kind sharingKind, sizes []int, rounds int) (err error) {
	code, err := d.Load(ctx, hal.Image{Name: "coherence", PTX: rereadKernel().String()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finally(code.Close)) }()
	for _, size := range sizes {
		if err := d.reread(ctx, code, kind, size, rounds); err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
	}
	return nil
}

// reread does it for one size: the first half is what the kernel reads, the second what it writes.
func (d *Device) reread(ctx context.Context, code hal.Module, kind sharingKind, size, rounds int) (err error) {
	m := &memory{device: d, size: 2 * size}
	if err := d.do(func() error { return m.allocate(kind) }); err != nil {
		return errors.Join(err, finally(m.Free))
	}
	defer func() { err = errors.Join(err, finally(m.Free)) }()
	words := size / 4
	g, err := d.Capture(ctx, []hal.Op{{Module: code, Kernel: "coherence", Grid: [3]int{(words + rereadThreads - 1) / rereadThreads, 1, 1}, Block: [3]int{rereadThreads, 1, 1},
		Params: []uint64{m.ptr, m.ptr + uint64(size), uint64(words)}, Sizes: []int{8, 8, 4},
		Reads: []hal.Range{{Memory: m, Bytes: size}}, Writes: []hal.Range{{Memory: m, Offset: size, Bytes: size}}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finally(g.Close)) }()
	from, to := wordsOf(m.host[:size]), wordsOf(m.host[size:])
	for round := range uint32(rounds) {
		for i := range from {
			from[i] = round<<20 ^ uint32(i)
		}
		if err := g.Run(ctx); err != nil {
			return err
		}
		for i, x := range to {
			if want := round<<20 ^ uint32(i) + 1; x != want {
				return fmt.Errorf("%w (round %d, word %d: %#x, not %#x)", errStale, round, i, x, want)
			}
		}
	}
	return nil
}

// finally closes what nobody else knows of: once more if the context could not be made current, since nothing was
// freed then.
func finally(closeIt func() error) error {
	err := closeIt()
	if unbound(err) {
		return errors.Join(err, closeIt())
	}
	return err
}

// unbound reports whether a call was not made since the context could not be made current.
func unbound(err error) bool {
	failed := (*hal.Error)(nil)
	return errors.As(err, &failed) && failed.Call == "cuCtxSetCurrent"
}

func wordsOf(b []byte) []uint32 { return unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), len(b)/4) }

// rereadKernel adds 1 to each of so many words.
func rereadKernel() *ptx.Module {
	m := ptx.NewModule(target.Oldest().Name)
	k := m.NewKernel("coherence", rereadThreads)
	from, to, at := k.RegVec(ptx.B64, 2), k.RegVec(ptx.B64, 2), k.RegVec(ptx.B32, 6)
	k.I("ld.param.u64", from[0], ptx.At(k.AddParam("from", "u64"), 0))
	k.I("ld.param.u64", to[0], ptx.At(k.AddParam("to", "u64"), 0))
	k.I("ld.param.u32", at[4], ptx.At(k.AddParam("words", "u32"), 0))
	k.I("mov.u32", at[0], ptx.Special("%ctaid.x"))
	k.I("mov.u32", at[1], ptx.Special("%ntid.x"))
	k.I("mov.u32", at[2], ptx.Special("%tid.x"))
	k.I("mad.lo.s32", at[3], at[0], at[1], at[2])
	p, end := k.Reg(ptx.Pred), k.NewLabel("end")
	k.I("setp.ge.u32", p, at[3], at[4])
	k.If(p, "bra", end)
	k.I("mad.wide.u32", from[1], at[3], ptx.Imm(4), from[0])
	k.I("mad.wide.u32", to[1], at[3], ptx.Imm(4), to[0])
	k.I("ld.global.u32", at[5], ptx.At(from[1], 0))
	k.I("add.u32", at[5], at[5], ptx.Imm(1))
	k.I("st.global.u32", ptx.At(to[1], 0), at[5])
	k.Place(end)
	k.I("ret")
	return m
}
