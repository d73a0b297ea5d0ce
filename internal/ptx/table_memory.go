package ptx

// memoryRows: loads, stores, asynchronous copies, atomics, prefetch (PTX ISA 9.7.9, 9.7.13).
var memoryRows = []row{
	{op: "ld.param.$", types: "u32 u64 f32", args: "=$ [p]", since: v10, does: Load},
	{op: "ld.global.$", types: "u8 s8 b16 b32 b64 f32 f64 u32", args: "=$ [g]", since: v10, does: Load},
	{op: "ld.global.v2.$", types: "b32 b64 f32", args: "=2*$ [g]", since: v10, does: Load},
	{op: "ld.global.v4.$", types: "b32 f32", args: "=4*$ [g]", since: v10, does: Load},
	{op: "ld.global.nc.$", types: "u8 s8 b16 b32 b64 f32 f64", args: "=$ [g]", since: Version{3, 1}, does: Load},
	{op: "ld.global.nc.v2.$", types: "b32 b64 f32", args: "=2*$ [g]", since: Version{3, 1}, does: Load},
	{op: "ld.global.nc.v4.$", types: "b32 f32", args: "=4*$ [g]", since: Version{3, 1}, does: Load},
	{op: "st.global.$", types: "u8 b16 b32 b64 f32 f64 u32", args: "=[g] $", since: v10, does: Store},
	{op: "st.global.v2.$", types: "b32 b64 f32", args: "=[g] 2*$", since: v10, does: Store},
	{op: "st.global.v4.$", types: "b32 f32", args: "=[g] 4*$", since: v10, does: Store},
	{op: "ld.shared.$", types: "u8 b32 b64 f32 f64 u32", args: "=$ [s]", since: v10, does: Load},
	{op: "ld.shared.v2.$", types: "b32 f32", args: "=2*$ [s]", since: v10, does: Load},
	{op: "ld.shared.v4.$", types: "b32 f32", args: "=4*$ [s]", since: v10, does: Load},
	{op: "st.shared.$", types: "u8 b16 b32 b64 f32 f64 u32", args: "=[s] $", since: v10, does: Store},
	{op: "st.shared.v2.$", types: "b32 f32", args: "=[s] 2*$", since: v10, does: Store},
	{op: "st.shared.v4.$", types: "b32 f32", args: "=[s] 4*$", since: v10, does: Store},
	// cp.async dst, src, bytes, src-bytes: bytes past src-bytes are zero-filled.
	{op: "cp.async.cg.shared.global", args: "=[s] [g] # b32", since: v70, need: AsyncCopy, does: CopyAsync, eval: CopySizes{16}},
	{op: "cp.async.ca.shared.global", args: "=[s] [g] # b32", since: v70, need: AsyncCopy, does: CopyAsync, eval: CopySizes{4, 8, 16}},
	// With a cache policy, of createpolicy (PTX ISA 9.7.9.18): a hint.
	{op: "cp.async.cg.shared.global.L2::cache_hint", args: "=[s] [g] # b32 b64", since: Version{7, 4}, need: AsyncCopy, does: CopyAsync, eval: CopySizes{16}},
	{op: "createpolicy.fractional.L2::evict_first.b64", args: "=b64 f32", since: Version{7, 4}, need: AsyncCopy, eval: unary(evictFirst)},
	{op: "cp.async.commit_group", since: v70, need: AsyncCopy, does: CommitCopies},
	{op: "cp.async.wait_group", args: "#", since: v70, need: AsyncCopy, does: WaitCopies},
	{op: "cp.async.wait_all", since: v70, need: AsyncCopy, does: WaitCopies},
	{op: "prefetch.global.L2", args: "[g]", since: v20, does: Prefetch},
	// cp.async.bulk.prefetch src, bytes: both multiples of 16.
	{op: "cp.async.bulk.prefetch.L2.global", args: "[g] b32", since: Version{8, 0}, need: BulkCopy, does: Prefetch},
	{op: "atom.global.add.u32", args: "=u32 =[g] u32", since: v10, does: Atomic, order: Relaxed, eval: atomics["add.u32"]},
	{op: "atom.acq_rel.gpu.global.add.u32", args: "=u32 =[g] u32", since: v60, does: Atomic, order: AcqRel, eval: atomics["add.u32"]},
	{op: "ld.acquire.gpu.global.u32", args: "=u32 [g]", since: v60, does: Load, order: Acquire},
	{op: "st.release.gpu.global.u32", args: "=[g] u32", since: v60, does: Store, order: Release},
}

// controlRows: control flow, barriers, fences, dependent launch (PTX ISA 9.7.12–9.7.13).
var controlRows = []row{
	{op: "bra", args: "L", since: v10, does: Branch},
	{op: "bra.uni", args: "L", since: v10, does: Branch, together: AgreeingLanes},
	{op: "ret", since: v10, does: Exit},
	{op: "exit", since: v10, does: Exit},
	{op: "bar.sync", args: "#", since: v10, does: Barrier},
	{op: "bar.warp.sync", args: "b32", since: v60, does: WarpBarrier},
	{op: "fence.acq_rel.gpu", since: v60, does: Fence},
	{op: "griddepcontrol.wait", since: Version{7, 8}, need: DependentLaunch, does: GridWait},
	{op: "griddepcontrol.launch_dependents", since: Version{7, 8}, need: DependentLaunch, does: GridLaunch},
}

// MaxBulkPrefetch is the most bytes that one cp.async.bulk.prefetch brings. The PTX ISA has no limit, but ptxas 13 keeps 16 bits of the
// number of 16-byte units (UBLKPF takes size >> 4 in a half register), so 1 MiB prefetches nothing, on sm_90 and sm_121 alike.
const MaxBulkPrefetch = 0xffff * 16

// EvictFirst is the cache policy of createpolicy for all accesses, which programs can only hand on; other devices may have other bits.
const EvictFirst uint64 = 0x12f0000000000000

func evictFirst(float32) uint64 { return EvictFirst }
