package ptx

// Action is what an instruction does beyond computing registers of its own lane. Reads, Writes and the table below say
// with which effects.
type Action uint8

// Actions.
const (
	Compute      Action = iota // nothing: Eval is all
	Load                       // ld
	Store                      // st
	Atomic                     // atom of 32 bits: Eval makes the new value of the old; lanes take turns in ascending order
	Prefetch                   // a hint
	CopyAsync                  // cp.async: arrives when it is waited for
	CommitCopies               // the thread's copies so far become a group
	WaitCopies                 // for all groups but the latest ones that the operand counts; without operand for all copies
	Multiply                   // mma: Eval computes it
	LoadMatrix                 // ldmatrix
	StoreMatrix                // stmatrix
	MoveMatrix                 // movmatrix: Eval computes it
	Shuffle                    // shfl.sync: Eval says which lanes are read
	Reduce                     // redux.sync: Eval combines two lanes' values
	Branch
	Exit
	Barrier     // of the block
	WarpBarrier // of the lanes that the operand names
	Fence       // orders the thread's accesses of global memory, as acquire and release
	GridWait    // for the launches that this one depends on
	GridLaunch  // lets dependent launches begin: a hint
)

// Lanes says which lanes of a warp must execute an instruction together.
type Lanes uint8

// Sets of lanes.
const (
	AnyLanes      Lanes = iota
	AgreeingLanes       // all that are together, or none of them
	NamedLanes          // those of a member mask
	LivingLanes         // all that have not exited
	BlockLanes          // all that the block has
	AllLanes            // 32
)

// effects are what the actions have in common.
var effects = [...]struct {
	kind     Kind
	together Lanes
}{
	Load: {kind: KindLoad}, Store: {kind: KindStore}, Atomic: {kind: KindAtomic}, Prefetch: {kind: KindLoad},
	CopyAsync: {kind: KindAsync}, CommitCopies: {KindAsync, LivingLanes}, WaitCopies: {KindAsync, LivingLanes},
	Multiply: {KindMMA, AllLanes}, LoadMatrix: {KindMatrix, AllLanes}, StoreMatrix: {KindMatrix, AllLanes}, MoveMatrix: {KindMatrix, AllLanes},
	Shuffle: {KindWarp, NamedLanes}, Reduce: {KindWarp, NamedLanes},
	Branch: {kind: KindControl}, Exit: {kind: KindControl}, Barrier: {KindSync, BlockLanes}, WarpBarrier: {KindSync, NamedLanes},
	Fence: {kind: KindSync}, GridWait: {kind: KindSync}, GridLaunch: {kind: KindSync},
}

// Order is the memory ordering of an access between blocks.
type Order uint8

// Orderings. An instruction that names none is plain, an atomic one relaxed (PTX ISA 8.1, "memory consistency model").
const (
	Plain Order = iota
	Relaxed
	Acquire
	Release
	AcqRel
)

// Feature is what a row requires of the target.
type Feature struct {
	Name string
	SM   int    // least compute capability ×10
	Arch string // "a": only an architecture-specific target has it
}

// Features.
var (
	Ampere          = Feature{"arithmetic of Ampere", 80, ""}
	AsyncCopy       = Feature{"asynchronous copies", 80, ""}
	BF16            = Feature{"bf16", 80, ""}
	BF16Arithmetic  = Feature{"arithmetic of bf16", 90, ""}
	Matrix16        = Feature{"16×8×16 matrix products", 80, ""}
	DependentLaunch = Feature{"dependent launch", 90, ""}
	BulkCopy        = Feature{"bulk copies", 90, ""}
	FP8             = Feature{"8-bit floats", 89, ""}
	StoredMatrix    = Feature{"stores of matrices", 90, ""}
	Pairs           = Feature{"arithmetic of pairs of f32", 100, ""}
	FP4             = Feature{"4-bit floats", 120, "a"}
)

// Writes reports whether the instruction writes memory.
func (d *Def) Writes() bool {
	for _, a := range d.Args {
		if a.Written {
			return true
		}
	}
	return false
}

// CopySizes is the Eval of cp.async: how many bytes it may copy.
type CopySizes []int

// Transposed is the Eval of ldmatrix: whether the 8×8 matrices are transposed on the way.
type Transposed bool

// Source is the Eval of shfl.sync: the lane that a lane reads, and whether it is in range; out of range a lane reads itself.
type Source func(lane, b, c uint32) (from uint32, inRange bool)

// Combine is the Eval of atom, of the old value and the operand, and of redux.sync, of two lanes' values.
type Combine func(a, b uint32) uint32
