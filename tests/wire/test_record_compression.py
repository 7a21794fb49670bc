"""Compression both ways with the clients' own codecs, and the limit on what may inflate."""

from __future__ import annotations

import tracemalloc
from random import Random

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_wire.protocol import ProtocolError
from ottla_wire.records import CompressionType, DecompressionError, compress, decompress

CODECS = [codec for codec in CompressionType if codec]


@pytest.mark.parametrize("codec", CompressionType)
@given(data=st.binary(max_size=2000), repeats=st.sampled_from([1, 3, 200]))
def test_what_is_compressed_can_be_read_again(codec, data, repeats):
    plain = data * repeats
    assert decompress(codec, compress(codec, plain)) == plain
    assert decompress(codec, memoryview(bytearray(compress(codec, memoryview(plain))))) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_large_and_incompressible_data_survive(codec):
    for plain in (Random(1).randbytes(300_000), bytes(3_000_000), b"abc" * 100_000):
        assert decompress(codec, compress(codec, plain), len(plain)) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_a_limit_is_kept_to_the_byte(codec):
    packed = compress(codec, bytes(1_000_000))
    assert len(decompress(codec, packed, 1_000_000)) == 1_000_000
    with pytest.raises(DecompressionError, match="inflate to more than 999999 bytes"):
        decompress(codec, packed, 999_999)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_takes_memory(codec):
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError, match="inflate to more"):
            decompress(codec, bomb, 1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_plain_data_or_refused(codec, data):
    try:
        plain = decompress(codec, data, 1 << 20)
    except ProtocolError:
        return
    assert len(plain) <= 1 << 20


@pytest.mark.parametrize("codec", CODECS)
def test_cut_data_is_refused(codec):
    packed = compress(codec, b"hello hello hello " * 100)
    for size in (0, 1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(DecompressionError):
            decompress(codec, packed[:size])


def test_a_codec_that_nobody_defined_is_refused():
    with pytest.raises(DecompressionError):
        decompress(5, b"")


def test_snappy_is_read_raw_as_librdkafka_writes_it_and_framed_as_java_does():
    plain = b"snappy " * 20_000
    framed = compress(CompressionType.SNAPPY, plain)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(CompressionType.SNAPPY, framed) == plain
    assert decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(plain))) == plain


def test_lz4_blocks_are_independent_because_the_java_client_reads_no_others():
    packed = compress(CompressionType.LZ4, b"lz4 " * 50_000)
    assert packed[:4] == bytes.fromhex("04224d18")
    independent_blocks = 0x20
    assert packed[4] & independent_blocks
    assert bytes(cramjam.lz4.decompress(packed)) == b"lz4 " * 50_000


def test_lz4_frames_with_dependent_blocks_are_read_too():
    assert decompress(CompressionType.LZ4, bytes(cramjam.lz4.compress(b"lz4 " * 50_000))) == b"lz4 " * 50_000


def test_zstd_without_a_content_size_is_read():
    compressor = cramjam.zstd.Compressor()
    compressor.compress(b"zstd " * 50_000)
    assert decompress(CompressionType.ZSTD, bytes(compressor.finish())) == b"zstd " * 50_000
