"""Steps of word vectors on a CPU, in Python that Numba compiles; imported only where Numba is.

A thread takes spans of text, one word after the other, and changes the vectors as it goes; several threads do so at
once without locks (Recht et al. 2011, as word2vec itself). What is drawn for a word depends on its place alone, so one
thread gives the same bits every time. Letters: B spans, L words of a span, V words, D width.
"""

# mypy: ignore-errors
from __future__ import annotations

from functools import partial

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

F, U = np.float32, np.uint64
LOW, HALF = U(2**32 - 1), U(32)
FIRST, SECOND, THIRD = U(0x9E3779B97F4A7C15), U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)
EDGE, CELLS = 16.0, 4096
"""Logits beyond the edge are certain; between, the sigmoid and its logarithm are interpolated in tables."""
_ends = np.linspace(-EDGE, EDGE, CELLS + 1)
SIGMOID = (1 / (1 + np.exp(-_ends))).astype(F)
SURPRISE = np.log1p(np.exp(-_ends)).astype(F)
"""-log sigmoid."""
LINE = 16
"""Numbers of a cache line."""
AHEAD, SOON = 4, 8
"""Predictions, and words, ahead of the present one whose rows are fetched."""
NONE = -1
"""In place of a negative that is the word itself, and after the last prediction."""

exact = partial(njit, nogil=True, error_model="numpy", cache=True)
# Sums may be reordered, which vectors need; NaN stays NaN.
compiled = partial(exact, fastmath={"reassoc", "contract", "arcp", "nsz"})


@intrinsic
def prefetch(typingctx, array, row, column):
    """Ask for a cache line of a matrix without waiting for it."""

    def codegen(context, builder, signature, arguments):
        matrix = context.make_array(signature.args[0])(context, builder, arguments[0])
        columns = cgutils.unpack_tuple(builder, matrix.shape)[1]
        at = builder.add(builder.mul(arguments[1], columns), arguments[2])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        address = builder.bitcast(builder.gep(matrix.data, [at]), byte)
        builder.call(function, [address, number(1), number(3), number(1)])  # to write, to keep, data
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), codegen


@exact(inline="always")
def mixed(x):
    """SplitMix64, as headway.data.batching.permutation has it."""
    x = x + FIRST
    x = (x ^ (x >> U(30))) * SECOND
    x = (x ^ (x >> U(27))) * THIRD
    return x ^ (x >> U(31))


@exact(inline="always")
def below(bits, size):
    """A number below `size` from 32 random bits."""
    return np.int64((bits * U(size)) >> HALF)


@compiled()
def learned(target, label, outputs, hidden, change, lr):
    """One logistic regression: `hidden` with the output row of a word; `change` collects what the input learns."""
    width, total = len(hidden), F(0)
    for k in range(width):
        total += hidden[k] * outputs[target, k]
    towards = total if label else -total
    if not towards > F(-EDGE):  # NaN too
        rate, loss = lr, -towards
    elif towards >= F(EDGE):
        rate, loss = F(0), F(0)
    else:
        at = (towards + F(EDGE)) * F(CELLS / (2 * EDGE))
        cell = np.int64(at)
        share = at - F(cell)
        rate = lr * (F(1) - SIGMOID[cell] - share * (SIGMOID[cell + 1] - SIGMOID[cell]))
        loss = SURPRISE[cell] + share * (SURPRISE[cell + 1] - SURPRISE[cell])
    rate = rate if label else -rate
    for k in range(width):
        before = outputs[target, k]
        change[k] += rate * before
        outputs[target, k] = before + rate * hidden[k]
    return loss


@exact(inline="always")
def fetch(matrix, row):
    """Fetch a row that is needed soon: it is anywhere in memory, and to wait for it takes longer than to use it."""
    if row >= 0:
        for column in range(0, matrix.shape[1], LINE):
            prefetch(matrix, row, column)


@exact()
def draw(word, state, place, alias, negatives, targets, first):
    """A word to predict and the negatives beside it, by the alias method; NONE for one that is the word itself."""
    shares, others = alias
    targets[first] = word
    start = state + U(1 + place * negatives)
    for number in range(negatives):
        bits = mixed(start + U(number))
        drawn = below(bits >> HALF, len(shares))
        if np.int64(bits & LOW) >= shares[drawn]:
            drawn = np.int64(others[drawn])
        targets[first + 1 + number] = drawn if drawn != word else NONE


@compiled()
def predicted(targets, first, last, outputs, hidden, change, lr):
    """Learn to tell a word from its negatives; `change` is what the input learns. Rows of later ones are fetched."""
    loss = F(0)
    change[:] = F(0)
    for place in range(first, last):
        fetch(outputs, targets[place + AHEAD])
        if targets[place] >= 0:
            loss += learned(targets[place], place == first, outputs, hidden, change, lr)
    return loss


@exact(inline="always")
def rows_of(word, pieces):
    """Where the rows of a word's n-grams stand."""
    starts = pieces[0]
    return (starts[word], starts[word + 1]) if len(starts) else (np.int64(0), np.int64(0))


@compiled()
def gathered(word, inputs, pieces, hidden):
    """Add the input rows of a word to `hidden`; how many there are."""
    for k in range(len(hidden)):
        hidden[k] += inputs[word, k]
    begin, end = rows_of(word, pieces)
    for place in range(begin, end):
        row = pieces[1][place]
        for k in range(len(hidden)):
            hidden[k] += inputs[row, k]
    return 1 + end - begin


@compiled()
def spread(word, inputs, pieces, change):
    """Add a change to the input rows of a word."""
    for k in range(len(change)):
        inputs[word, k] += change[k]
    begin, end = rows_of(word, pieces)
    for place in range(begin, end):
        row = pieces[1][place]
        for k in range(len(change)):
            inputs[row, k] += change[k]


@compiled()
def skip_gram(words, at, begin, end, targets, group, inputs, outputs, pieces, work, lr):
    """A word predicts each of its neighbours; a copy of its vector learns, and the rows follow at the end."""
    hidden, change, start, loss = work[0], work[1], work[2], F(0)
    hidden[:] = F(0)
    rows = gathered(words[at], inputs, pieces, hidden)
    for k in range(len(hidden)):
        hidden[k] /= F(rows)
        start[k] = hidden[k]
    for first in range(0, (end - begin - 1) * group, group):
        loss += predicted(targets, first, first + group, outputs, hidden, change, lr)
        for k in range(len(hidden)):
            hidden[k] += change[k]
    for k in range(len(hidden)):
        start[k] = hidden[k] - start[k]
    spread(words[at], inputs, pieces, start)
    return loss


@compiled()
def cbow(words, at, begin, end, targets, group, inputs, outputs, pieces, work, lr):
    """The mean of the neighbours predicts a word."""
    hidden, change, rows = work[0], work[1], 0
    hidden[:] = F(0)
    for other in range(begin, end):
        if other != at:
            rows += gathered(words[other], inputs, pieces, hidden)
    for k in range(len(hidden)):
        hidden[k] /= F(rows)
    loss = predicted(targets, 0, group, outputs, hidden, change, lr)
    for other in range(begin, end):
        if other != at:
            spread(words[other], inputs, pieces, change)
    return loss


@exact()
def drawn(words, state, at, begin, end, window, negatives, bag, alias, outputs, targets):
    """All targets of a window, in the order in which they are learned; the first are fetched. Their number."""
    count, group = 0, 1 + negatives
    if bag:
        draw(words[at], state, 0, alias, negatives, targets, 0)
        count = group
    else:
        for other in range(begin, end):
            if other != at:
                draw(words[other], state, other - at + window, alias, negatives, targets, count)
                count += group
    targets[count : count + AHEAD] = NONE
    for place in range(AHEAD):
        fetch(outputs, targets[place])
    return count


@exact()
def step(spans, places, key, keep, alias, inputs, outputs, pieces, window, negatives, bag, lr):
    """Learn from spans (B, L) of text, in which -1 ends a sentence; the summed loss, and the number of predictions.

    `places` (B,) is the place of each span's first word; `keep` (V,) and the shares of `alias` are out of 2^32;
    `pieces` are where each word's rows of n-grams start and which they are, both empty without n-grams; `bag`: CBOW.
    """
    length = spans.shape[1]
    words, states = np.empty(length, np.int64), np.empty(length, U)
    targets = np.empty(2 * window * (1 + negatives) + AHEAD, np.int64)
    work, group = np.empty((3, inputs.shape[1]), F), 1 + negatives
    loss, pairs = 0.0, 0
    for b in range(len(spans)):
        count = 0
        for place in range(length + 1):
            word = np.int64(spans[b, place]) if place < length else np.int64(-1)
            if word >= 0:
                state = mixed(key + U(places[b] + place))
                if np.int64(state >> HALF) < keep[word]:
                    words[count], states[count] = word, state
                    count += 1
                continue
            for at in range(count):
                reach = 1 + below(states[at] & LOW, window)
                begin, end = max(0, at - reach), min(count, at + reach + 1)
                if end - begin < 2:
                    continue
                pairs += (
                    drawn(words, states[at], at, begin, end, window, negatives, bag, alias, outputs, targets) // group
                )
                if at + SOON < count:
                    fetch(inputs, words[at + SOON])
                if bag:
                    loss += cbow(words, at, begin, end, targets, group, inputs, outputs, pieces, work, lr)
                else:
                    loss += skip_gram(words, at, begin, end, targets, group, inputs, outputs, pieces, work, lr)
            count = 0
    return loss, pairs
