"""State bytes: exact on the round trip, refused wherever they do not fit, silent about data."""

from __future__ import annotations

import itertools
import pickle
import struct
import zlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.counters.clock import clock_of
from beam_dpcount.mechanisms import BinaryTree, NormalizedBLT, SmoothBinary
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.noise.laws import DiscreteGaussian
from beam_dpcount.states.codecs import OTHER_COUNTER, StateCodec, statistic_codec, tick_codec
from beam_dpcount.states.envelope import (
    CORRUPT,
    FORMAT,
    GO_BACK,
    OTHER_ENTROPY,
    OTHER_FORMAT,
    UPGRADE,
    StateError,
)
from beam_dpcount.states.wire import pack_sums
from beam_dpcount.statistics import Words
from tests.scripted import Script

examples = settings(max_examples=200, deadline=None, derandomize=True, database=None)
int64s = st.integers(-(2**63), 2**63 - 1)

SCALAR = dp.calibrate(BinaryTree(100), dp.ZCDP(0.5))
PACKED = dp.calibrate(NormalizedBLT(100), dp.ZCDP(0.5))
VECTOR = dp.calibrate(SmoothBinary(100), dp.ZCDP(0.5), dp.Change(-1.0, 2.0), 3, 0.5)
SECRETS = (123_456_789, -987_654_321, 31_415_926_535_897)


def state_after(counter, n, start=1000):
    """The state after n steps of ones; the noises are start, -2 start, 3 start, ..."""
    z = np.array([start * i * (-1) ** (i + 1) for i in range(1, n + 1)])
    ones = 1 if counter.dimension is None else np.ones(counter.dimension)
    if counter.dimension is not None:
        z = z[:, None] + np.arange(counter.dimension)
    state, noise = counter.init(), Script(z)
    for _ in range(n):
        state, _ = counter.step(state, ones, noise)
    return state


def with_checksum(body):
    return body + struct.pack("<I", zlib.crc32(body))


def refused(codec, data):
    with pytest.raises(StateError) as caught:
        codec.decode(bytes(data))
    message = str(caught.value)
    assert not any(str(abs(number)) in message for number in SECRETS)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message


# Round trips


@pytest.mark.slow
@examples
@given(st.integers(0, 100), st.lists(int64s, min_size=1, max_size=12))
def test_scalar_states_come_back_exactly(t, numbers):
    codec = StateCodec(SCALAR)
    decoded = codec.decode(codec.encode((t, *numbers)))
    assert decoded == (t, *numbers)
    assert all(type(n) is int for n in decoded)


@pytest.mark.slow
@examples
@given(st.tuples(int64s, int64s, int64s), st.lists(st.tuples(int64s, int64s, int64s), min_size=1))
def test_vector_states_come_back_exactly(head, rows):
    codec = StateCodec(VECTOR)
    state = (*head, *(np.array(row, dtype=np.int64) for row in rows))
    decoded = codec.decode(codec.encode(state))
    assert len(decoded) == len(state)
    assert decoded[:3] == head
    assert all(type(n) is int for n in decoded[:3])
    for row, back in zip(rows, decoded[3:], strict=True):
        assert back.dtype == np.int64
        assert back.tolist() == list(row)


@pytest.mark.parametrize("counter", [SCALAR, VECTOR], ids=["scalar", "vector"])
def test_real_states_come_back_and_equal_states_have_equal_bytes(counter):
    codec = StateCodec(counter)
    for n in (0, 1, 2, 37, 63, 100):
        data = codec.encode(state_after(counter, n))
        assert data == codec.encode(state_after(counter, n))
        assert codec.encode(codec.decode(data)) == data
        assert StateCodec(pickle.loads(pickle.dumps(counter))).encode(codec.decode(data)) == data


@pytest.mark.parametrize("dimension", [1, 2, 3000, 20_000])
def test_vectors_of_any_dimension_come_back(dimension):
    """3000 coordinates outgrow 65535 numbers at step 2^21 - 1 only, 20 000 at step 7."""
    counter = dp.calibrate(BinaryTree(2**21), dp.ZCDP(0.5), dp.Change(coordinates=1), dimension)
    codec = StateCodec(counter)
    state = counter.init()
    row = np.arange(dimension, dtype=np.int64)
    full = (2**21 - 1, *(row + i for i in range(22)))
    for state in (counter.init(), (7, *(row - i for i in range(4))), full):
        decoded = codec.decode(codec.encode(state))
        assert decoded[0] == state[0]
        assert np.array_equal(decoded[1:], state[1:])


def test_numbers_that_do_not_fit_are_refused():
    for number in (2**63, -(2**63) - 1):
        with pytest.raises((StateError, struct.error, OverflowError)):
            StateCodec(SCALAR).encode((1, number, 0))


# Refusals


@pytest.mark.parametrize("counter", [SCALAR, VECTOR], ids=["scalar", "vector"])
def test_every_flipped_bit_is_refused(counter):
    codec = StateCodec(counter)
    data = codec.encode(state_after(counter, 23))
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert "corrupt" in refused(codec, flipped)
    assert codec.encode(codec.decode(data)) == data


@pytest.mark.parametrize("counter", [SCALAR, VECTOR], ids=["scalar", "vector"])
def test_every_truncation_and_extension_is_refused(counter):
    codec = StateCodec(counter)
    data = codec.encode(state_after(counter, 23))
    for n in range(len(data)):
        message = refused(codec, data[:n])
        assert "corrupt" in message
        assert str(n) not in message.replace(CORRUPT, "")  # it would tell of the data
        refused(codec, data[len(data) - n :])
    for more in (b"\0", b"\0" * 8, data):
        refused(codec, data + more)
    # Whole numbers cut out or put in, and the checksum made right again.
    for body in (data[:-12], data[:-4] + bytes(8)):
        refused(codec, with_checksum(body))


def test_empty_bytes_are_refused_and_the_message_says_what_to_do():
    message = refused(StateCodec(SCALAR), b"")
    assert message == CORRUPT


@pytest.mark.parametrize("version", [0, 1, 2, 3, 5, 255])
def test_other_versions_are_refused_by_name(version):
    data = StateCodec(SCALAR).encode((3, *SECRETS))
    message = refused(StateCodec(SCALAR), with_checksum(bytes([version]) + data[1:-4]))
    remedy = GO_BACK if version < FORMAT else UPGRADE
    assert message == OTHER_FORMAT.format(theirs=version, ours=FORMAT, remedy=remedy)
    assert FORMAT == 4


@pytest.mark.parametrize("length", [1, 8, 16])
def test_digests_of_histories_come_back_and_others_are_refused(length):
    plain, codec, digest = StateCodec(SCALAR), StateCodec(SCALAR, length), bytes(range(length))
    data = codec.encode((3, *SECRETS), digest)
    assert codec.decode(data) == (3, *SECRETS)
    assert codec.digest_of(data) == digest
    assert data[1] == length
    without = plain.encode((3, *SECRETS))
    assert len(data) == len(without) + length
    for reader, packed in (
        (plain, data),
        (codec, without),
        (StateCodec(SCALAR, 24), data),
    ):
        assert refused(reader, packed) == OTHER_ENTROPY
    vectors = StateCodec(VECTOR, length)
    state = state_after(VECTOR, 7)
    packed = vectors.encode(state, digest)
    assert vectors.encode(vectors.decode(packed), vectors.digest_of(packed)) == packed


OTHERS = {
    "mechanism": (BinaryTree(100), dp.ZCDP(0.5), dp.Change(-1.0, 2.0), 3, 0.5),
    "variant": (SmoothBinary(100, True), dp.ZCDP(0.5), dp.Change(-1.0, 2.0), 3, 0.5),
    "horizon": (SmoothBinary(101), dp.ZCDP(0.5), dp.Change(-1.0, 2.0), 3, 0.5),
    "budget": (SmoothBinary(100), dp.ZCDP(0.51), dp.Change(-1.0, 2.0), 3, 0.5),
    "kind of budget": (SmoothBinary(100), dp.ApproxDP(1, 1e-6), dp.Change(-1.0, 2.0), 3, 0.5),
    "low": (SmoothBinary(100), dp.ZCDP(0.5), dp.Change(-1.5, 2.0), 3, 0.5),
    "high": (SmoothBinary(100), dp.ZCDP(0.5), dp.Change(-1.0, 1.5), 3, 0.5),
    "relation": (SmoothBinary(100), dp.ZCDP(0.5), dp.Change(-1.0, 2.0, "add_remove"), 3, 0.5),
    "coordinates": (SmoothBinary(100), dp.ZCDP(0.5), dp.Change(-1.0, 2.0, coordinates=2), 3, 0.5),
    "dimension": (SmoothBinary(100), dp.ZCDP(0.5), dp.Change(-1.0, 2.0), 1, 0.5),
    "scalar": (SmoothBinary(100), dp.ZCDP(0.5), dp.Change(-1.0, 2.0), None, 0.5),
    "unit": (SmoothBinary(100), dp.ZCDP(0.5), dp.Change(-1.0, 2.0), 3, 0.25),
}


@pytest.mark.parametrize("parameter", OTHERS)
def test_states_of_other_counters_are_refused(parameter):
    other = StateCodec(dp.calibrate(*OTHERS[parameter]))
    head = (3,) * VECTOR.mechanism.counters
    data = StateCodec(VECTOR).encode((*head, *(np.full(3, s) for s in SECRETS)))
    message = refused(other, data)
    assert message == OTHER_COUNTER


def test_the_law_is_part_of_the_parameters():
    other = replace(SCALAR, law=DiscreteGaussian(SCALAR.law.sigma2 + Fraction(1, 10**9)))
    assert refused(StateCodec(other), StateCodec(SCALAR).encode((0, 0))) == OTHER_COUNTER


def test_equal_counters_read_each_others_states():
    """Bounds may be written 0 or 0.0, the unit 1 or 1.0, the horizon as numpy has it."""
    data = StateCodec(SCALAR).encode((3, *SECRETS))
    for mechanism, change, unit in (
        (BinaryTree(100), dp.Change(0, 1), 1),
        (BinaryTree(np.int64(100)), dp.Change(), 1.0),
        (BinaryTree(100), dp.Change(np.float64(0), np.float64(1)), Fraction(1)),
    ):
        equal = dp.calibrate(mechanism, dp.ZCDP(0.5), change, None, unit)
        assert equal == SCALAR
        assert StateCodec(equal).decode(data) == (3, *SECRETS)


# The format, pinned: a change of these bytes is a new version


GOLDEN = {
    "scalar": (
        SCALAR,
        11,
        (
            "040024d00000000020000000b1d1960b0b000000000000000b00000000000000c0e0ffffffffffff"
            "f0d8fffffffffffff82a000000000000563f0bd5"
        ),
    ),
    "packed": (
        PACKED,
        5,
        (
            "04005fde0000000039000000a713278205000000000000000000283f3a8f019911fcb3df6300da29"
            "c801ab1301fe6c8fd0028601f62113a6070000988a1d759e0b003f2c0a5a76140043daa7448d1600"
            "00afd4c233"
        ),
    ),
    "vector": (
        VECTOR,
        3,
        (
            "040075050000000070000000a560f70103000000000000001d000000000000000300000000000000"
            "060000000000000006000000000000000600000000000000e803000000000000e903000000000000"
            "ea0300000000000030f8ffffffffffff31f8ffffffffffff32f8ffffffffffffb80b000000000000"
            "b90b000000000000ba0b000000000000bbfd04a2"
        ),
    ),
}

# As former formats wrote them.
FORMER = (
    "0100cd6f29921109a941050000000b000000000000000b00000000000000c0e0fffffffffffff0d8"
    "fffffffffffff82a00000000000033092d0a",
    "01004546d88559df9dae0f00000003000000000000001d0000000000000003000000000000000600"
    "00000000000006000000000000000600000000000000e803000000000000e903000000000000ea03"
    "00000000000030f8ffffffffffff31f8ffffffffffff32f8ffffffffffffb80b000000000000b90b"
    "000000000000ba0b00000000000058bba2e0",
    "020024d00000000004000000ebcac7b34ee601650b000000000000000b00000000000000c0e0ffff"
    "fffffffff0d8fffffffffffff82a000000000000f3f19da7",
    "030024d00000000020000000b1d1960b0b000000000000000b00000000000000c0e0ffffffffffff"
    "f0d8fffffffffffff82a0000000000007344e085",
)


@pytest.mark.parametrize("name", GOLDEN)
def test_format_4_is_written_and_read_as_ever(name):
    counter, n, pinned = GOLDEN[name]
    data = bytes.fromhex(pinned)
    state = state_after(counter, n)
    assert StateCodec(counter).encode(state).hex() == pinned
    decoded = StateCodec(counter).decode(data)
    assert len(decoded) == len(state)
    assert all(np.array_equal(a, b) for a, b in zip(decoded, state, strict=True))
    # And the numbers are where the format says: little-endian at the end, before the checksum.
    step, *parts = state
    numbers = b"".join(p if type(p) is bytes else np.asarray(p, "<i8").tobytes() for p in parts)
    assert data[16:-4] == struct.pack("<q", step) + numbers
    assert struct.unpack_from("<I", data, 8) == (len(numbers),)
    assert data[-4:] == struct.pack("<I", zlib.crc32(data[:-4]))


def test_former_formats_are_refused_by_name():
    for former in FORMER:
        message = refused(StateCodec(SCALAR), bytes.fromhex(former))
        number = int(former[:2])
        assert message == OTHER_FORMAT.format(theirs=number, ours=4, remedy=GO_BACK)


def test_the_state_of_one_moment_with_the_memory_of_another_is_refused():
    """A CRC-32 over bytes that end in their own is always the same: two of them saw nothing."""
    words = Words("abc", 3)
    change = words.change("replace_one")
    counter = dp.calibrate(SmoothBinary(100), dp.ZCDP(0.5), change, words.dimension)
    codec, moments = statistic_codec(counter, words), []
    state, memory, noise = counter.init(), words.init(), SystemNoise(counter.law, words.dimension)
    for letter in "abcacbbacabcba" * 4:
        codes, _ = words.read(letter)
        memory, x = words.count(memory, codes)
        state, _ = counter.step_lattice(state, x, noise)
        moments.append(codec.encode(state, b"", words.pack(memory)))
    spliced = 0
    for one, other in itertools.permutations(moments, 2):
        for at in (len(one) - len(codec.memory_of(one)) - 4, 20, 28, 36):
            if len(one) == len(other) and one[:at] != other[:at] and one[at:] != other[at:]:
                spliced += 1
                assert "corrupt" in refused(codec, one[:at] + other[at:])
    assert spliced > 1000


def test_a_cell_of_a_clock_is_one_whole():
    """The state of one tick is not taken for that of another by the sums that are pending."""
    codec = tick_codec(SCALAR, clock_of(10, 0, horizon=100), ["a"])
    one_key = replace(SCALAR, dimension=1)
    states = [codec.encode(state_after(one_key, n), b"", pack_sums({n + 1: n})) for n in (11, 13)]
    one, other = states
    assert len(one) == len(other)
    for at in range(1, len(one)):
        if one[:at] != other[:at] and one[at:] != other[at:]:
            assert "corrupt" in refused(codec, one[:at] + other[at:])


def test_states_are_small():
    """Eight bytes a number but the step, and 28 around them: at most 196 for a million steps."""
    counter = dp.calibrate(BinaryTree(2**20), dp.ZCDP(0.5))
    assert counter.state_size == 22
    largest = (2**20 - 1, *range(21))
    assert len(StateCodec(counter).encode(largest)) == 196
    assert len(StateCodec(counter).encode(counter.init())) == 36
