package layout

// Fragment says which element of a matrix a lane's value holds: row and column as sums of modes of the lane index and
// of the value index (outermost mode first). Each shape is written once; everything that packs or stores fragments
// reads it.
type Fragment struct {
	Name               string
	Rows, Cols         int
	LaneRow, LaneCol   []Mode // modes of the lane, 0–31
	ValueRow, ValueCol []Mode // modes of the value; value i lies in register i / PerReg
	PerReg             int    // values in a register, lowest bits first
}

// At is the element that a lane's value holds.
func (f Fragment) At(lane, value int) (row, col int) {
	return Offset(f.LaneRow, lane) + Offset(f.ValueRow, value), Offset(f.LaneCol, lane) + Offset(f.ValueCol, value)
}

// Fragments of mma.sync.m16n8k16 for 16-bit operands (PTX ISA 9.7.14.5.8, "Matrix fragments for mma.m16n8k16 with
// floating point type"). Rows and columns are those of the matrices as the instruction defines them: A is m×k, B is
// k×n, C is m×n. With g = lane/4 and t = lane%4, a value's modes from the outside are (k half, m half, pair).
var (
	B16x8 = Fragment{Name: "B k16n8", Rows: 16, Cols: 8, PerReg: 2,
		LaneRow: []Mode{{8, 0}, {4, 2}}, LaneCol: []Mode{{8, 1}, {4, 0}},
		ValueRow: []Mode{{2, 8}, {2, 1}}, ValueCol: []Mode{{2, 0}, {2, 0}}}
	C16x8 = Fragment{Name: "C m16n8", Rows: 16, Cols: 8, PerReg: 1,
		LaneRow: []Mode{{8, 1}, {4, 0}}, LaneCol: []Mode{{8, 0}, {4, 2}},
		ValueRow: []Mode{{2, 8}, {2, 0}}, ValueCol: []Mode{{2, 0}, {2, 1}}}
)

// Swizzle places the 16-byte chunks of a tile of rows in shared memory: chunk c of row r lies at place c XOR a function
// of r, so that the same chunk of eight neighbouring rows (one 8×8 matrix of ldmatrix, or eight lanes' 16-byte loads)
// falls into eight different groups of four banks.
type Swizzle struct {
	Chunks int // 16-byte chunks a row
	Shift  int // rows that share a key, as a power of two
	Mask   int // of the key; less than the power of two in Chunks, so that every chunk stays in its row
}

// NewSwizzle returns the placement for rows of that many bytes, a multiple of 16.
func NewSwizzle(rowBytes int) Swizzle {
	s := Swizzle{Chunks: rowBytes / 16}
	switch s.Chunks & -s.Chunks {
	case 1: // rows of an odd number of chunks begin in different banks
	case 2:
		s.Shift, s.Mask = 2, 1
	case 4:
		s.Shift, s.Mask = 1, 3
	default:
		s.Mask = 7
	}
	return s
}

// Byte is the offset of a chunk from the tile's beginning.
func (s Swizzle) Byte(row, chunk int) int {
	return (row*s.Chunks + (chunk ^ row>>s.Shift&s.Mask)) * 16
}

// Fragments of mma.sync.m16n8k32 for 8-bit and of m16n8k64 for 4-bit operands ("Matrix fragments for mma.m16n8k32", "…
// m16n8k64"): byte for byte those of 16-bit operands.
var (
	B32x8 = Fragment{Name: "B k32n8", Rows: 32, Cols: 8, PerReg: 4,
		LaneRow: []Mode{{8, 0}, {4, 4}}, LaneCol: []Mode{{8, 1}, {4, 0}},
		ValueRow: []Mode{{2, 16}, {4, 1}}, ValueCol: []Mode{{2, 0}, {4, 0}}}
	B64x8 = Fragment{Name: "B k64n8", Rows: 64, Cols: 8, PerReg: 8,
		LaneRow: []Mode{{8, 0}, {4, 8}}, LaneCol: []Mode{{8, 1}, {4, 0}},
		ValueRow: []Mode{{2, 32}, {8, 1}}, ValueCol: []Mode{{2, 0}, {8, 0}}}
)
