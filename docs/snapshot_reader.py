#!/usr/bin/env python3
"""Asks a snapshot of bloomguard for keys, as docs/snapshot-format.md describes it. Needs libxxhash (Debian: libxxhash0).

usage: snapshot_reader.py FILE KEY...      prints `maybe KEY` or `absent KEY`; keys in their canonical form
"""
import ctypes, ctypes.util, json, struct, sys

MASK = (1 << 64) - 1


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
for function in (xxhash.XXH3_128bits, xxhash.XXH3_128bits_withSecret):
    function.restype = Hash128
xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
xxhash.XXH3_128bits_withSecret.argtypes = [ctypes.c_char_p, ctypes.c_size_t] * 2


def checksum(data):
    found = xxhash.XXH3_128bits(data, len(data))
    return struct.pack(">QQ", found.high, found.low)


class Snapshot:
    def __init__(self, path):
        data = open(path, "rb").read()
        magic, version, length = struct.unpack_from("<8sII", data)
        assert magic == b"BGSNAP\x1a\n" and version == 1, "not a snapshot of version 1"
        assert checksum(data[:16] + data[32:length]) == data[16:32], "the header is damaged"
        self.header = json.loads(data[32:length])
        self.secret = bytes.fromhex(self.header["secret"])
        self.layers = []
        for layer in self.header["layers"]:
            padded = -(-layer["words"] * 8 // 4096) * 4096
            words = data[length:length + padded]
            assert len(words) == padded and checksum(words).hex() == layer["checksum"], "a layer is damaged"
            self.layers.append((layer, [int(salt, 16) for salt in layer["salt"]], words))
            length += padded
        assert length == len(data), "there is more than the layers"

    def contains(self, key):
        found = xxhash.XXH3_128bits_withSecret(key, len(key), self.secret, len(self.secret))
        return any(self.in_layer(layer, salt, words, found.low, found.high) for layer, salt, words in self.layers)

    @staticmethod
    def in_layer(layer, salt, words, low, high):
        assert layer["kind"] == "split_block", "this reader knows split blocks only"
        place, bits = low * (salt[0] | 1) & MASK, high
        block = place * (layer["bits"] // 512) >> 64
        eight = struct.unpack_from("<8Q", words, block * 64)
        return all(word >> (bits >> 6 * i & 63) & 1 for i, word in enumerate(eight))


if __name__ == "__main__":
    snapshot = Snapshot(sys.argv[1])
    for key in sys.argv[2:]:
        print("maybe" if snapshot.contains(key.encode()) else "absent", key)
