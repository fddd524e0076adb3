"""Dot products on a CPU that sum in a fixed order, whatever the batch size.

A compiler that may reorder sums chooses another order in each loop. Here lane l of 16 sums the columns l, l + 16, …,
then the lanes are added in pairs, then the columns that fill no vector. So a dot product is the same to the bit, alone
or in a tile with others. Numba has no vector types: this emits LLVM code.
"""

# mypy: ignore-errors
from __future__ import annotations

import platform

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
FUSED = platform.machine() not in ("x86_64", "AMD64") or get_host_cpu_features().get("fma", False)
FLOAT = ir.FloatType()


def tile(outputs, rows):
    """A function of weight (N, K), n, x (B, K), b: dot products of rows n … of the matrix with rows b … of x."""

    @intrinsic
    def sums(typingctx, weight, n, x, b):
        result = types.UniTuple(types.float32, outputs * rows)

        def codegen(context, builder, signature, arguments):
            w_type, _, x_type, _ = signature.args
            w, first, v, row = arguments
            ours = context.make_array(w_type)(context, builder, w)
            theirs = context.make_array(x_type)(context, builder, v)
            columns = cgutils.unpack_tuple(builder, theirs.shape)[1]
            left = [_row(builder, ours.data, first, i, columns) for i in range(outputs)]
            right = [_row(builder, theirs.data, row, j, columns) for j in range(rows)]
            found = _sums(builder, left, right, columns)
            return context.make_tuple(builder, signature.return_type, found)

        return result(weight, types.intp, x, types.intp), codegen

    return sums


def _row(builder, data, first, more, columns):
    at = builder.mul(builder.add(first, first.type(more)), columns)
    return builder.gep(data, [at])


def _sums(builder, left, right, columns):
    """Dot products of every row on the left with every row on the right."""
    vector, width = ir.VectorType(FLOAT, LANES), columns.type(LANES)
    pairs = [(i, j) for i in range(len(left)) for j in range(len(right))]
    lanes = {pair: cgutils.alloca_once_value(builder, vector(None)) for pair in pairs}
    rest = {pair: cgutils.alloca_once_value(builder, FLOAT(0)) for pair in pairs}
    whole = builder.sub(columns, builder.urem(columns, width))
    for kind, totals, begin, end, step in (
        (vector, lanes, columns.type(0), whole, width),
        (FLOAT, rest, whole, columns, columns.type(1)),
    ):
        with cgutils.for_range_slice(builder, begin, end, step, columns.type) as (k, _):
            ours, theirs = ([_load(builder, row, k, kind) for row in side] for side in (left, right))
            for i, j in pairs:
                builder.store(_added(builder, kind, ours[i], theirs[j], builder.load(totals[i, j])), totals[i, j])
    return [builder.fadd(_cross_attend(builder, builder.load(lanes[p])), builder.load(rest[p])) for p in pairs]


def _load(builder, row, k, kind):
    """Load one number or a vector of them as floats. Rows may begin at any address that suits their type."""
    item = row.type.pointee
    many = isinstance(kind, ir.VectorType)
    place = builder.gep(row, [k])
    if many:
        place = builder.bitcast(place, ir.VectorType(item, LANES).as_pointer())
    value = builder.load(place)
    value.align = 4 if item == FLOAT else 1
    return value if item == FLOAT else builder.sitofp(value, kind)


def _added(builder, kind, a, b, total):
    """a · b + total, as a fused multiply-add if the CPU has one; the compiler must not choose, loop by loop."""
    if not FUSED:
        return builder.fadd(builder.fmul(a, b), total)
    name = "llvm.fma.f32" if kind is FLOAT else f"llvm.fma.v{LANES}f32"
    fused = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(fused, [a, b, total])


def _cross_attend(builder, vector):
    """The sum of all lanes, added in pairs."""
    half = LANES // 2
    while half:
        some = [ir.Constant(ir.VectorType(ir.IntType(32), half), [*range(at, at + half)]) for at in (0, half)]
        low, high = (builder.shuffle_vector(vector, vector, mask) for mask in some)
        vector, half = builder.fadd(low, high), half // 2
    return builder.extract_element(vector, ir.IntType(32)(0))
