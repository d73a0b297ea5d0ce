"""Kernels whose PTX Triton writes for internal/testing/foreignkernels. make.py compiles them."""
import triton
import triton.language as tl


@triton.jit
def product(x, w, y, rows, columns, depth, x_row, w_depth, w_column,
            ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, SUM: tl.constexpr, ZERO: tl.constexpr):
    """y[r, c] = sum over d of x[r, d] * w[d, c]; w is addressed by two strides, y is dense."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    d = tl.arange(0, DEPTH)
    total = tl.zeros((ROWS, COLUMNS), dtype=SUM)
    for first in range(0, depth, DEPTH):
        inside = first + d < depth
        a = tl.load(x + r[:, None] * x_row + (first + d)[None, :], mask=(r < rows)[:, None] & inside[None, :], other=ZERO)
        b = tl.load(w + (first + d)[:, None] * w_depth + c[None, :] * w_column, mask=inside[:, None] & (c < columns)[None, :], other=ZERO)
        total = tl.dot(a, b, total)
    tl.store(y + r[:, None] * columns + c[None, :], total, mask=(r < rows)[:, None] & (c < columns)[None, :])


@triton.jit
def scaled(x, x_scale, w, w_scale, y, columns, depth,
           ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, BLOCK: tl.constexpr,
           X: tl.constexpr, W: tl.constexpr, X_PACK: tl.constexpr, W_PACK: tl.constexpr):
    """y = x·wᵀ of block-scaled formats: rows of x and w are contiguous, with a scale for each BLOCK elements; PACK elements a byte."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, depth, DEPTH):
        xd = first // X_PACK + tl.arange(0, DEPTH // X_PACK)
        wd = first // W_PACK + tl.arange(0, DEPTH // W_PACK)
        s = first // BLOCK + tl.arange(0, DEPTH // BLOCK)
        a = tl.load(x + r[:, None] * (depth // X_PACK) + xd[None, :])
        b = tl.load(w + c[None, :] * (depth // W_PACK) + wd[:, None])
        sa = tl.load(x_scale + r[:, None] * (depth // BLOCK) + s[None, :])
        sb = tl.load(w_scale + c[:, None] * (depth // BLOCK) + s[None, :])
        total = tl.dot_scaled(a, sa, X, b, sb, W, total)
    tl.store(y + r[:, None] * columns + c[None, :], total)


@triton.jit
def normal(x, gain, y, columns, tiny, WIDTH: tl.constexpr):
    """A softmax of each row of x over its root mean square, times a gain for each column."""
    row = tl.program_id(0)
    c = tl.arange(0, WIDTH)
    here = c < columns
    v = tl.load(x + row * columns + c, mask=here, other=0.0).to(tl.float32)
    v = v / tl.sqrt(tl.sum(v * v, axis=0) / columns + tiny)
    v = tl.where(here, v, float("-inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    g = tl.load(gain + c, mask=here, other=0.0)
    tl.store(y + row * columns + c, (e / tl.sum(e, axis=0) * g).to(y.dtype.element_ty), mask=here)


@triton.jit
def attend(q, k, v, y, tokens, factor, Q: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr):
    """Causal attention of one head, keys a tile at a time; factor is log2(e) over the root of the width."""
    qs = tl.program_id(0) * Q + tl.arange(0, Q)
    d = tl.arange(0, WIDTH)
    query = tl.load(q + qs[:, None] * WIDTH + d[None, :], mask=(qs < tokens)[:, None], other=0.0)
    most = tl.full((Q,), float("-inf"), tl.float32)
    weight = tl.zeros((Q,), tl.float32)
    total = tl.zeros((Q, WIDTH), tl.float32)
    for first in range(0, tl.minimum(tokens, (tl.program_id(0) + 1) * Q), K):
        ks = first + tl.arange(0, K)
        key = tl.load(k + ks[None, :] * WIDTH + d[:, None], mask=(ks < tokens)[None, :], other=0.0)
        score = tl.dot(query, key) * factor
        score = tl.where((qs[:, None] >= ks[None, :]) & (ks < tokens)[None, :], score, float("-inf"))
        now = tl.maximum(most, tl.max(score, axis=1))
        p = tl.exp2(score - now[:, None])
        old = tl.exp2(most - now)
        weight = weight * old + tl.sum(p, axis=1)
        value = tl.load(v + ks[:, None] * WIDTH + d[None, :], mask=(ks < tokens)[:, None], other=0.0)
        total = tl.dot(p.to(value.dtype), value, total * old[:, None])
        most = now
    tl.store(y + qs[:, None] * WIDTH + d[None, :], (total / weight[:, None]).to(y.dtype.element_ty), mask=(qs < tokens)[:, None])


@triton.jit
def totals(x, bins, sums, counts, n, WIDTH: tl.constexpr):
    """sums[0] += Σx, sums[1] = max x, sums[2] = min x; counts[bins] += 1, and the greatest and least bin behind them."""
    i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    here = i < n
    v = tl.load(x + i, mask=here, other=0.0)
    b = tl.load(bins + i, mask=here, other=0)
    tl.atomic_add(sums, tl.sum(v, axis=0))
    tl.atomic_max(sums + 1, tl.max(v, axis=0))
    tl.atomic_min(sums + 2, tl.min(v, axis=0))
    tl.atomic_add(counts + b, 1, mask=here)
    tl.atomic_max(counts + 16, tl.max(b, axis=0))
    tl.atomic_min(counts + 17, tl.min(b, axis=0))


@triton.jit
def running(x, y, columns, WIDTH: tl.constexpr):
    """Sums of each row's elements so far."""
    c = tl.arange(0, WIDTH)
    row = tl.program_id(0)
    v = tl.load(x + row * columns + c, mask=c < columns, other=0.0)
    tl.store(y + row * columns + c, tl.cumsum(v, axis=0), mask=c < columns)


@triton.jit
def narrow(x, y, z, n, WIDTH: tl.constexpr):
    """y is x rounded to a narrower type, z that widened again."""
    i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    v = tl.load(x + i, mask=i < n, other=0.0).to(y.dtype.element_ty)
    tl.store(y + i, v, mask=i < n)
    tl.store(z + i, v.to(z.dtype.element_ty), mask=i < n)


@triton.jit
def turn(x, y, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """y = xᵀ, and the place of each row's greatest element, through shared memory."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    t = tl.load(x + r[:, None] * columns + c[None, :], mask=(r < rows)[:, None] & (c < columns)[None, :], other=0.0)
    tl.store(y + c[:, None] * rows + r[None, :], tl.trans(t), mask=(c < columns)[:, None] & (r < rows)[None, :])


@triton.jit
def greatest(x, place, columns, WIDTH: tl.constexpr):
    """The first place of each row's greatest element."""
    c = tl.arange(0, WIDTH)
    row = tl.program_id(0)
    v = tl.load(x + row * columns + c, mask=c < columns, other=float("-inf"))
    tl.store(place + row, tl.argmax(v, axis=0))


@triton.jit
def digits(x, y, n, WIDTH: tl.constexpr):
    """Integer arithmetic: division by constants, remainders, upper halves of products."""
    i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    v = tl.load(x + i, mask=i < n, other=0)
    a = v // 7 + v % 1000
    b = tl.umulhi(v.to(tl.uint32, bitcast=True), 2654435761).to(tl.int32, bitcast=True)
    s = v.to(tl.int16) // 37
    tl.store(y + i, a ^ b ^ s.to(tl.int32), mask=i < n)


@triton.jit
def halves(x, w, y, n, WIDTH: tl.constexpr):
    """y = max(x·w + x, 0) in the type of x."""
    i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    a = tl.load(x + i, mask=i < n, other=0.0)
    b = tl.load(w + i, mask=i < n, other=0.0)
    tl.store(y + i, tl.maximum(a * b + a, 0.0), mask=i < n)


@triton.jit
def soften(x, y, columns, WIDTH: tl.constexpr):
    """A softmax of each row."""
    c = tl.arange(0, WIDTH)
    row = tl.program_id(0)
    v = tl.load(x + row * columns + c, mask=c < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * columns + c, (e / tl.sum(e, axis=0)).to(y.dtype.element_ty), mask=c < columns)


@triton.jit
def centred(x, y, columns, WIDTH: tl.constexpr):
    """Each row less its mean."""
    c = tl.arange(0, WIDTH)
    row = tl.program_id(0)
    v = tl.load(x + row * columns + c, mask=c < columns, other=0.0).to(tl.float32)
    mean = tl.sum(v, axis=0) / columns
    tl.store(y + row * columns + c, (v - mean).to(y.dtype.element_ty), mask=c < columns)
