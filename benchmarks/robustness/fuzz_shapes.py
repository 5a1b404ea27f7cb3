"""Hypothesis strategies for `fuzz.py`: nearly valid files, each from a reader's seeds.

Damage alone stops at the first checksum or bracket. These are whole in their outer form and odd inside.
"""
import copy
import gzip
import io
import json
import pickletools
import struct
import tarfile
import zipfile
import zlib

import numpy as np
from google.protobuf import message
from hypothesis import strategies as st
from tensorflow.core.protobuf import tensor_bundle_pb2

from data_prep.core import records, tfrecord

BIG = st.sampled_from([0, 1, -1, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 63 - 1, 2 ** 63, 2 ** 64, -2 ** 63, 10 ** 30])
NUMBER = st.one_of(BIG, st.integers(-9, 300), st.floats())
TEXT = st.one_of(st.text(max_size=8), st.sampled_from(
    ['..', '/', '/etc/passwd', '../../x', '\0', '\ud800', '\x1b[2J', 'a\nb', '9' * 5000, '_locked', 'as_dict',
     'override', '__class__', 'restrictions', 'default_params', 'data_prep.wmt', 'gs://x/y', '']))
ODD = st.recursive(st.one_of(st.none(), st.booleans(), NUMBER, TEXT),
                   lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
                   max_leaves=8)
DEEP = st.sampled_from([b'[', b'{"a":', b'(', b'- ', b'? ']).flatmap(
    lambda part: st.sampled_from([200, 3000, 100_000]).map(lambda times: part * times))


def _places(value, found):
    """Return every (container, key) in a tree of JSON."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        found.append((value, key))
        if isinstance(inner, dict | list):
            _places(inner, found)
    return found


def _edited(good, edits):
    value = copy.deepcopy(good)
    for place, key, odd, how in edits:
        places = _places(value, [])
        if not places:
            break
        where, own = places[place % len(places)]
        if how == 'put':
            where[own] = odd
        elif how == 'drop':
            del where[own]
        elif isinstance(where, dict):
            where[key] = odd
        else:
            where.insert(own, odd)
    return value


EDITS = st.lists(st.tuples(st.integers(0, 999), TEXT, ODD, st.sampled_from(['put', 'drop', 'more'])), min_size=1,
                 max_size=4)


def _parsed(seeds):
    for seed in seeds:
        try:
            return json.loads(seed)
        except ValueError:
            pass
    raise ValueError('no seed is JSON')


def json_like(seeds):
    good = _parsed(seeds)
    edited = EDITS.map(lambda edits: json.dumps(_edited(good, edits)).encode())
    return st.one_of(edited, edited, ODD.map(lambda value: json.dumps(value).encode()), DEEP)


def _soup(*tokens: bytes, most=40):
    return st.lists(st.one_of(st.sampled_from(tokens), TEXT.map(_utf8)), max_size=most).map(b''.join)


def _utf8(text: str) -> bytes:
    return text.encode('utf-8', 'surrogatepass')


YAML = _soup(b'a', b': ', b'- ', b'\n', b'\n  ', b'&a ', b'*a', b'[', b']', b'{', b'}', b'!!', b'!!float ', b'!!set ',
             b'|', b'>', b'"', b"'", b'<<: ', b'data: ', b'model: ', b'train: ', b'seed: ', b'extends: ',
             b'0x1', b'1:60', b'~', b'2001-12-32', b'!!binary ', b'!!timestamp ', b'!!omap ', b'%YAML 1.1\n', b'---\n',
             b'? ', b'#')


def config(seeds):
    good = _parsed(seeds)
    edited = EDITS.map(lambda edits: json.dumps(_edited(good, edits)).encode())
    return st.one_of(edited, edited, edited, YAML, YAML.map(lambda soup: seeds[0] + b'\n' + soup), DEEP)


def override(seeds):
    del seeds
    keys = st.sampled_from([b'seed', b'name', b'train.steps', b'train.init_from', b'data.train', b'data', b'train',
                            b'data.module', b'model.module', b'model.preset', b'model.d_model', b'model.P_drop',
                            b'input.buckets', b'evaluate.thresholds', b'evaluate.thresholds.bleu.min',
                            b'evaluate.networks', b'inference.alpha', b'push.destination', b'model.vocab_size',
                            b'data.max_dead_letters'])
    values = st.one_of(YAML, ODD.map(lambda value: json.dumps(value).encode()), DEEP)
    return st.builds(lambda key, equals, value: key + equals + value, st.one_of(keys, keys, keys, TEXT.map(_utf8)),
                     st.sampled_from([b'=', b'=', b'=', b'.a=', b'']), values)


def table(seeds):
    return _soup(*seeds, b'"', b'""', b',', b'\t', b'\n', b'\r\n', b'\r', b'\0', b'\xff', b'\xef\xbb\xbf', b'one', b'1',
                 b'n01440764', b' ', b'x' * 140_000, b'ImageId,\n', most=20)


def trees(seeds):
    return _soup(*seeds, b'(', b')', b'(S ', b'(NN a)', b'\n', b'\n(', b' ', b'(-NONE- *)', b'\xff', b'\0', b'word',
                 b'(S ' * 20_000, b')' * 20_000, b'x' * 140_000, most=20)


def sgml(seeds):
    return _soup(*seeds, b'<seg>', b'<seg id="1">', b'</seg>', b'</seg >', b'<seg', b'>', b'<', b'&amp;', b'&#10;',
                 b'&#' + b'9' * 5000 + b';', b'&#xD800;', b'&#x' + b'f' * 99 + b';', b'\xff', b'<hl>',
                 b'<seg>' * 20_000, b'<seg ' * 20_000, b'</seg>' * 20_000)


def pairs(seeds):
    return _soup(*seeds, b'00000_00.jpg', b' ', b'\n', b'\t', b'../', b'/', b'a', b'.', b'..', b'\0', b'x' * 300,
                 b'\xff', b'gs://', b'\\', b'.jpg\n', b'00000_00.jpg 00000_00.jpg\n', b'\x1b[2J')


def xml(seeds):
    return _soup(*seeds, b'<annotation>', b'</annotation>', b'<size><width>', b'</width></size>', b'<object><bndbox>',
                 b'</bndbox></object>', b'<xmin>', b'</xmin>', b'<ymax>', b'</ymax>', b'1', b'-1', b'1e999', b'nan',
                 b'9' * 400, b'9' * 5000, b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>', b'&b;',
                 b'<a>' * 9000, b'<?xml version="1.0" encoding="utf-16"?>')


def index(seeds):
    """Return a wrong .npy header before correct rows."""
    rows = seeds[0][-3 * 20:]
    shape = st.one_of(BIG.map(lambda n: (n,)), st.just((3,)), st.just((3, 1)), st.just(()), st.just('x'))
    descr = st.one_of(TEXT, st.sampled_from(['<u8', '|O', 'O', '<U9', '|V20', '<M8[ns]', [('offset', '<u8')] * 2]), ODD,
                      st.just(records.index_dtype(('inputs',)).descr))

    def made(descr, shape, fortran, version, rows):
        head = repr({'descr': descr, 'fortran_order': fortran, 'shape': shape}).encode('latin-1', 'replace') + b'\n'
        size = struct.pack('<H' if version < 2 else '<I', len(head) & 0xFFFF)
        return b'\x93NUMPY' + bytes([version, 0]) + size + head + rows

    lies = st.builds(made, descr, shape, st.booleans(), st.sampled_from([1, 2, 3, 9]),
                     st.sampled_from([rows, b'', rows * 2]))

    def altered(changes):
        found = np.frombuffer(rows, records.index_dtype(('inputs',))).copy()
        for number, column, value in changes:
            found[number][column] = value % (1 << 32 if column else 1 << 64)
        return seeds[0][:-len(rows)] + found.tobytes()
    numbers = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), BIG), min_size=1, max_size=3).map(altered)
    return st.one_of(lies, numbers)


def _size(number: int) -> bytes:
    if 0 <= number < 8 ** 11:
        return b'%011o\0' % number
    return (b'\x80' if number >= 0 else b'\xff') + (number % (1 << 88)).to_bytes(11, 'big')


def _entry(entry) -> bytes:
    name, kind, size, content, link = entry
    head = bytearray(512)
    head[:100] = _utf8(name)[:100].ljust(100, b'\0')
    head[100:108], head[108:116], head[116:124] = [b'0000644\0', b'0000000\0', b'0000000\0']
    head[124:136], head[136:148] = _size(len(content) if size is None else size), b'00000000000\0'
    head[156:157], head[157:257] = kind, _utf8(link)[:100].ljust(100, b'\0')
    head[257:265] = b'ustar\00000'
    head[148:156] = b' ' * 8
    head[148:156] = b'%06o\0 ' % sum(head)
    return bytes(head) + content + bytes(-len(content) % 512)


def tar(seeds):
    names = st.one_of(TEXT, st.sampled_from(['a.en', 'a.de', 'n01/a.jpg', 'b.tar', 'x.xml', 'y_boxes.txt',
                                             'c/../../d.jpg']))
    kinds = st.one_of(st.sampled_from([tarfile.REGTYPE] * 4), st.sampled_from(
        [bytes([kind]) for kind in b'\0' b'1234567xgXLKSV']))
    pax = st.sampled_from([b'12 path=abc\n', b'15 size=-1024\n', b'22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n',
                           b'20 GNU.sparse.size=5\n', b'24 GNU.sparse.map=1,2,3\n', b'0 a=b\n', b'9' * 5000 + b' a=b\n',
                           b'25 hdrcharset=\xff\xff\n', b'99 size=' + b'9' * 40 + b'\n', b'13 size=1e99\n'])
    contents = st.one_of(st.binary(max_size=40), st.just(seeds[0][:2048]), pax, st.just(bytes(2048)))
    entry = st.tuples(names, kinds, st.one_of(st.none(), st.none(), BIG), contents, TEXT).map(_entry)
    entries = st.lists(entry, max_size=6).map(b''.join)
    chain = st.sampled_from([b'x', b'g', b'L', b'K']).map(
        lambda kind: _entry(('a', kind, None, b'12 path=abc\n', '')) * 2000)
    return st.builds(lambda body, end: body + bytes(end), st.one_of(entries, entries, entries, chain),
                     st.sampled_from([0, 512, 1024]))


def packed_tar(seeds):
    return tar([gzip.decompress(seed) for seed in seeds]).map(lambda data: gzip.compress(data, 1, mtime=0))


def png(seeds):
    """PNG of any header, with chunks that fit or not; and JPEG of odd segments."""
    def chunk(kind, content):
        return struct.pack('>I', len(content)) + kind + content + struct.pack('>I', zlib.crc32(kind + content))

    def made(width, height, depth, colour, interlace, chunks, rows):
        head = struct.pack('>IIBBBBB', width % 2 ** 32, height % 2 ** 32, depth, colour, 0, 0, interlace)
        body = b''.join(chunk(kind, content) for kind, content in chunks)
        body += chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b'')
        return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + body
    side = st.one_of(st.integers(1, 40), st.sampled_from([20, 24, 96, 128]), BIG)
    kinds = st.sampled_from([b'PLTE', b'tRNS', b'gAMA', b'IDAT', b'sBIT', b'bKGD', b'iCCP', b'zTXt', b'acTL', b'ABCD'])
    chunks = st.lists(st.tuples(kinds, st.binary(max_size=60)), max_size=4)
    rows = st.one_of(st.binary(max_size=300), st.integers(0, 40_000).map(bytes))
    images = st.builds(made, side, side, st.sampled_from([1, 2, 4, 8, 8, 16, 0, 3, 255]),
                       st.sampled_from([0, 2, 3, 4, 6, 7]), st.sampled_from([0, 0, 1, 2]), chunks, rows)
    jpegs = [seed for seed in seeds if seed.startswith(b'\xff\xd8')]
    if not jpegs:
        return images

    def spliced(seed, at, marker, content):
        starts = [place for place in range(2, len(seed) - 1) if seed[place] == 255 and seed[place + 1] >= 0xC0]
        place = starts[at % len(starts)]
        return seed[:place] + b'\xff' + bytes([marker]) + struct.pack('>H', len(content) + 2) + content + seed[place:]
    return st.one_of(images, st.builds(spliced, st.sampled_from(jpegs), st.integers(0, 99), st.integers(0xC0, 0xFE),
                                       st.binary(max_size=80)))


def zipped(program: bytes) -> bytes:
    """Return a file of PyTorch with this pickle, and a storage of six float32."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as archive:
        for name, content in (('data.pkl', program), ('byteorder', b'little'), ('data/0', bytes(24))):
            archive.writestr(zipfile.ZipInfo(f'net/{name}'), content)
    return out.getvalue()


def pickle(seeds):
    """Programs of any instructions, among those of a good one."""
    with zipfile.ZipFile(io.BytesIO(seeds[0])) as archive:
        good = archive.read('net/data.pkl')
    ends = [place for _, _, place in pickletools.genops(good)][1:] + [len(good)]
    steps = [good[a:b] for a, b in zip([0, *ends], ends)]
    codes = st.sampled_from([opcode.code.encode('latin-1') for opcode in pickletools.opcodes])
    other = st.one_of(st.tuples(codes, st.binary(max_size=9)).map(b''.join), st.sampled_from(steps),
                      BIG.map(lambda n: b'\x8a\x10' + (n % (1 << 128)).to_bytes(16, 'little')),
                      st.sampled_from([b'ccollections\nOrderedDict\n', b'cos\nsystem\n', b'cbuiltins\neval\n',
                                       b'(' * 3000]))

    def made(changes):
        program = list(steps)
        for place, step, instead in changes:
            place %= len(program)
            program[place:place + instead] = [step]
        return zipped(b''.join(program))
    return st.lists(st.tuples(st.integers(0, 99), other, st.booleans()), min_size=1, max_size=4).map(made)


def _varint(number: int) -> bytes:
    out = b''
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def _unvarint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return number, at


def table_file(seeds):
    """Return the index of a checkpoint with wrong entries and correct checksums."""
    data = seeds[0]
    _, at = _unvarint(data, len(data) - 48)
    _, at = _unvarint(data, at)
    start, at = _unvarint(data, at)
    size, _ = _unvarint(data, at)
    [(_, handle)] = _rows(data[start:start + size])
    offset, at = _unvarint(handle, 0)
    rows = _rows(data[offset:offset + _unvarint(handle, at)[0]])
    entry = st.tuples(st.sampled_from(['dtype', 'shape', 'shard_id', 'offset', 'size', 'crc32c', 'slices',
                                        'bytes']), BIG)

    def made(changes):
        changed = list(rows)
        for place, (what, number) in changes:
            key, value = changed[place % len(rows)]
            changed[place % len(rows)] = key, _told(key, value, what, number)
        return _table(changed)
    return st.lists(st.tuples(st.integers(0, 99), entry), min_size=1, max_size=2).map(made)


def _told(key: bytes, value: bytes, what: str, number: int) -> bytes:
    if what == 'bytes':
        return value[:number % (len(value) + 1)] + bytes([number % 256]) + value[number % (len(value) + 1):]
    if not key:
        return tensor_bundle_pb2.BundleHeaderProto(num_shards=number % (1 << 31)).SerializeToString()
    try:
        entry = tensor_bundle_pb2.BundleEntryProto.FromString(value)
    except message.DecodeError:  # of a change before this one
        return value
    if what == 'shape':
        entry.shape.dim.add(size=(number + (1 << 63)) % (1 << 64) - (1 << 63))
    elif what == 'slices':
        entry.slices.add().extent.add(start=number % (1 << 62))
    else:
        bits = {'dtype': 7, 'shard_id': 31, 'offset': 63, 'size': 63, 'crc32c': 32}[what]
        setattr(entry, what, number % (1 << bits))
    return entry.SerializeToString()


def _rows(block: bytes) -> list[tuple[bytes, bytes]]:
    """Keys and values of an uncompressed block of LevelDB's table format."""
    end = len(block) - 4 - 4 * struct.unpack('<I', block[-4:])[0]
    rows, at, key = [], 0, b''
    while at < end:
        shared, at = _unvarint(block, at)
        own, at = _unvarint(block, at)
        size, at = _unvarint(block, at)
        key = key[:shared] + block[at:at + own]
        rows.append((key, block[at + own:at + own + size]))
        at += own + size
    return rows


def _table(rows) -> bytes:
    """Return a table of one block."""
    out, handles = b'', []
    for block_rows in (rows, [], None):
        block_rows = [(rows[-1][0] + b'\xff', handles[0])] if block_rows is None else block_rows
        body = b''.join(b'\0' + _varint(len(key)) + _varint(len(value)) + key + value for key, value in block_rows)
        body += struct.pack('<II', 0, 1)
        handles.append(_varint(len(out)) + _varint(len(body)))
        out += body + b'\0' + struct.pack('<I', tfrecord.masked_crc(body + b'\0'))
    return out + (handles[1] + handles[2]).ljust(40, b'\0') + struct.pack('<Q', 0xDB4775248B80FB57)
