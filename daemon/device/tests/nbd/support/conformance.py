"""Drives libnbd, a client that we did not write, through everything it can say. Usage: conformance.py URI; the export is fresh,
64 MiB, and is left zeroed. Prints what was negotiated and OK."""

import errno
import sys

import nbd

URI = sys.argv[1]
SIZE = 64 << 20
ALLOCATION = "base:allocation"


def connect(contexts=True, structured=True):
    h = nbd.NBD()
    # So that it sends our mistakes, but still sets the flags that extended headers ask for.
    h.set_strict_mode(getattr(nbd, "STRICT_AUTO_FLAG", 0))
    h.set_request_structured_replies(structured)
    if contexts and structured:
        h.add_meta_context(ALLOCATION)
    h.connect_uri(URI)
    return h


def fails(number, call, *args):
    try:
        call(*args)
    except nbd.Error as error:
        assert error.errno == errno.errorcode[number], (error.errno, errno.errorcode[number], str(error))
        return str(error)
    raise AssertionError("expected %s" % errno.errorcode[number])


def options():
    h = nbd.NBD()
    h.set_opt_mode(True)
    h.set_full_info(True)
    h.connect_uri(URI)
    names = []
    h.opt_list(lambda name, description: names.append((name, description)))
    assert names == [("disk", "a disk")], names
    h.set_export_name("nonesuch")
    fails(errno.ENOENT, h.opt_info)
    h.set_export_name("")
    h.opt_info()
    assert h.get_canonical_export_name() == "disk"
    assert h.get_export_description() == "a disk"
    assert h.get_block_size(nbd.SIZE_MINIMUM) == 1
    assert h.get_block_size(nbd.SIZE_MAXIMUM) == 32 << 20
    contexts = []
    h.add_meta_context("base:")
    h.opt_list_meta_context(contexts.append)
    assert contexts == [ALLOCATION], contexts
    h.set_export_name("disk")
    h.opt_go()
    assert h.pread(1, 0) == b"\0"
    h.shutdown()
    h = nbd.NBD()
    h.set_opt_mode(True)
    h.connect_uri(URI)
    h.opt_abort()


def facts(h):
    assert h.get_size() == SIZE
    for can in [h.can_flush, h.can_fua, h.can_trim, h.can_zero, h.can_fast_zero, h.can_cache, h.can_multi_conn]:
        assert can(), can
    assert not h.is_read_only() and not h.is_rotational()


def data(h):
    pattern = bytes(range(256)) * 4096
    h.pwrite(pattern, 12345)
    assert h.pread(len(pattern), 12345) == pattern
    h.pwrite(b"fua", SIZE - 3, nbd.CMD_FLAG_FUA)
    assert h.pread(3, SIZE - 3) == b"fua"
    h.flush()
    h.cache(4096, 0)
    for flags in [0, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FAST_ZERO, nbd.CMD_FLAG_FUA]:
        h.pwrite(pattern[:8192], 4096)
        h.zero(5000, 5000, flags)
        assert h.pread(8192, 4096) == pattern[:904] + bytes(5000) + pattern[5904:8192]
    h.trim(SIZE, 0, nbd.CMD_FLAG_FUA)
    assert h.pread(SIZE // 2, 0) == bytes(SIZE // 2)


def structured(h):
    assert h.get_structured_replies_negotiated() and h.can_df() and h.can_meta_context(ALLOCATION)
    h.pwrite(b"x" * 4096, 8192)
    chunks = []
    h.pread_structured(1 << 20, 0, lambda buf, at, kind, err: chunks.append((at, len(buf), kind)))
    hole, data = nbd.READ_HOLE, nbd.READ_DATA
    assert sorted(chunks) == [(0, 8192, hole), (8192, 4096, data), (12288, (1 << 20) - 12288, hole)], chunks
    chunks.clear()
    h.pread_structured(1 << 20, 0, lambda buf, at, kind, err: chunks.append(kind), nbd.CMD_FLAG_DF)
    assert chunks == [data]
    extents = []
    h.block_status(SIZE, 0, lambda context, at, entries, err: extents.extend(entries))
    assert extents == [8192, 3, 4096, 0, SIZE - 12288, 3], extents
    extents.clear()
    h.block_status(SIZE, 0, lambda context, at, entries, err: extents.extend(entries), nbd.CMD_FLAG_REQ_ONE)
    assert extents == [8192, 3], extents
    h.trim(4096, 8192)


def errors(h):
    fails(errno.EINVAL, h.pread, 1, SIZE)
    fails(errno.ENOSPC, h.pwrite, b"12", SIZE - 1)
    fails(errno.EINVAL, h.trim, 2, SIZE - 1)
    fails(errno.ENOSPC, h.zero, 2, SIZE - 1)
    fails(errno.EINVAL, h.pwrite, b"1", 0, nbd.CMD_FLAG_DF)
    fails(errno.EINVAL, h.trim, 0, 0)
    fails(errno.EINVAL, h.pread, 1, (1 << 63) - 1)
    assert h.pread(1, 0) == b"\0", "the session goes on"


def asynchronous(h):
    buffers = {}
    for i in range(64):
        h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([i] * 4096)), i * 4096)
    while h.aio_in_flight():
        h.poll(-1)
    for i in range(64):
        buffers[i] = nbd.Buffer(4096)
        h.aio_pread(buffers[i], i * 4096)
        h.aio_flush()
    while h.aio_in_flight():
        h.poll(-1)
    for i in range(64):
        assert buffers[i].to_bytearray() == bytes([i]) * 4096, i
    h.zero(64 * 4096, 0)


def extended(h):
    """Only with libnbd 1.18 or later."""
    if not hasattr(h, "get_extended_headers_negotiated"):
        return "structured"
    assert h.get_extended_headers_negotiated()
    extents = []
    h.block_status_64(SIZE, 0, lambda context, at, entries, err: extents.extend(entries))
    assert extents == [(SIZE, 3)], extents
    if hasattr(h, "can_block_status_payload"):
        assert h.can_block_status_payload()
        extents.clear()
        h.block_status_filter(SIZE, 0, [ALLOCATION], lambda context, at, entries, err: extents.extend(entries))
        assert extents == [(SIZE, 3)], extents
    return "extended"


def main():
    options()
    h = connect()
    facts(h)
    data(h)
    structured(h)
    errors(h)
    asynchronous(h)
    mode = extended(h)
    h.shutdown()
    h = connect(structured=False)
    facts(h)
    data(h)
    errors(h)
    asynchronous(h)
    h.shutdown()
    print(mode, "OK")


main()
