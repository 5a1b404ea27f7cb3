"""The framing of TFRecord files: length, its checksum, the record, its checksum."""
import struct

import google_crc32c

HEADER = struct.Struct('<QI')  # length of the record, and the checksum of these 8 bytes
FOOTER = struct.Struct('<I')  # checksum of the record


def masked_crc(data: bytes) -> int:
    """Return the CRC-32C as TFRecord files store it: rotated right by 15 bits, plus a constant."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
