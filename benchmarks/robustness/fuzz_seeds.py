"""Small valid files for `fuzz.py` to damage, values to insert, and the repair of their checksums."""
import io
import struct
import tarfile
import zlib

import numpy as np
import scipy.io
from PIL import Image

XML = (b'<annotation><size><width>24</width><height>20</height></size><object><bndbox><xmin>1</xmin><ymin>2</ymin>'
       b'<xmax>9</xmax><ymax>8</ymax></bndbox></object></annotation>')
SGML = (b'<srcset setid="a"><doc docid="b">\n<p><seg id="1"> AT&amp;T &#38; &#x2014; </seg>\n<seg id="2">two</seg></p>'
        b'</doc></srcset>\n')
SEG = (b'<seg>', b'</seg>', b'<seg ', b'&#', b'&#99999999;', b'</seg\n>', b'<', b'&#x')
YAML = (b'&a ', b'*a', b'- ', b': ', b'!!python/object/apply:os.system ["true"]', b'!!timestamp 2001-99-99', b'? ',
        b'[', b'{', b'<<: ', b'"\\ud800"', b'"\\0"', b'.nan', b'1e999', b'0x', b'_locked', b'extends: ', b'|\n', b'\t')
TABLE = (b'"', b'\t', b',', b'\n', b'\r', b'\0', b'\xef\xbb\xbf', b'""', b'\xe2\x80\xa8')
TREES = (b'( (S\n    (NP-SBJ (-NONE- *) (NNP Ada) )\n    '
         b'(VP (VBZ \xc3\xb6)) (. .) ))\n\n(NP (NN word))\n( (S (NN a)) )')
BRACKETS = (b'(', b')', b'\n(', b' ', b'\n', b'-NONE-', b'()', b'(S', b'\xff', b'\0')
PNG = (b'IDAT', b'PLTE', b'tRNS', b'IEND', b'\0\0\0\0', b'IHDR', b'zTXt', b'\xff\xda', b'\xff\xc4', b'\xff\xc2')
XMLS = (b'<!DOCTYPE x [<!ENTITY a "aaaa">]>', b'&a;', b'<bndbox>', b'nan', b'inf', b'-1', b'9' * 400, b'<width>')

STATE = (b'\x80\x02}q\x00(X\x06\x00\x00\x00weightq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00stor'
         b'ageq\x03ctorch\nFloatStorage\nq\x04X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06K\x06%stq\x07QK\x00K\x02K\x03'
         b'\x86q\x08K\x03K\x01\x86q\x09\x89ccollections\nOrderedDict\nq\x0a)Rq\x0btq\x0cRq\x0du.')


def tar(kind: int, names=('a.en', 'a.de', 'n01/b.jpg', 'c_boxes.txt', 'x' * 120 + 'ö.jpg')) -> bytes:
    """Return an archive with files, a folder, a link and a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=kind) as writer:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 4
            writer.addfile(entry, io.BytesIO(b'one\n'))
        link, inner = tarfile.TarInfo('link'), tarfile.TarInfo('n02.tar')
        link.type, link.linkname, inner.size = tarfile.SYMTYPE, '/etc/passwd', 1024
        writer.addfile(link)
        writer.addfile(inner, io.BytesIO(bytes(1024)))
    return out.getvalue()


def tar_sums(data: bytes) -> bytes:
    """Return a tar with correct checksums wherever a header may be."""
    done = bytearray(data)
    for at in range(0, len(done) - 511, 512):
        if done[at + 257:at + 262] == b'ustar':
            done[at + 148:at + 156] = b' ' * 8
            done[at + 148:at + 156] = b'%06o\0 ' % sum(done[at:at + 512])
    return bytes(done)


def picture(kind: str, mode: str = 'RGB', size=(24, 20), **options) -> bytes:
    small = Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)).resize(size)
    out = io.BytesIO()
    small.convert(mode).save(out, kind, **options)
    return out.getvalue()


def png_sums(data: bytes) -> bytes:
    """Return a PNG with correct checksums, as far as its chunks can be followed."""
    done, at = bytearray(data), 8
    while at + 12 <= len(done):
        end = at + 8 + int.from_bytes(done[at:at + 4], 'big')
        if end + 4 > len(done):
            break
        done[end:end + 4] = struct.pack('>I', zlib.crc32(done[at + 4:end]))
        at = end + 4
    return bytes(done)


def matlab() -> bytes:
    rows = np.array([(1, 'n01440764', 'tench'), (2, 'n01443537', 'goldfish')],
                    [('ILSVRC2012_ID', 'O'), ('WNID', 'O'), ('words', 'O')])
    out = io.BytesIO()
    scipy.io.savemat(out, {'synsets': rows}, do_compression=True)
    return out.getvalue()


def zip_sums(data: bytes) -> bytes:
    """Return a zip archive with correct checksums, as far as its stored members can be followed."""
    done, at = bytearray(data), 0
    for _ in range(99):
        if (at := done.find(b'PK\x01\x02', at)) < 0 or at + 46 > len(done):
            break
        size, head = struct.unpack_from('<I', done, at + 24)[0], struct.unpack_from('<I', done, at + 42)[0]
        if head + 30 < len(done):
            begin = head + 30 + sum(struct.unpack_from('<HH', done, head + 26))
            crc = struct.pack('<I', zlib.crc32(done[begin:begin + size]))
            done[at + 16:at + 20] = done[head + 14:head + 18] = crc
        at += 4
    return bytes(done)
