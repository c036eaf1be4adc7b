#!/usr/bin/env python3
"""Asks a snapshot of bloomguard for keys, as docs/formats.md describes it. Needs libxxhash (Debian: libxxhash0).

usage: snapshot_reader.py FILE KEY...      prints `maybe KEY` or `absent KEY`; keys in their canonical form
"""
import ctypes, ctypes.util, json, struct, sys

MASK = (1 << 64) - 1
SPREAD = 0x9E3779B97F4A7C15


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


def fold(x, y):
    return x * y & MASK ^ x * y >> 64


def places(layer, salt, low, high):
    place, step, bend = fold(low ^ salt[0], high ^ salt[1]), fold(high ^ salt[2], low ^ salt[3]), 0
    for _ in range(layer["hashes"]):
        yield place * layer["bits"] >> 64
        place = place + step & MASK
        bend = bend + SPREAD & MASK
        step = step + bend & MASK


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
        if layer["kind"] == "split_block":
            place = low * (salt[0] | 1) & MASK
            block = place * (layer["bits"] // 512) >> 64
            eight = struct.unpack_from("<8Q", words, block * 64)
            return all(word >> (high >> 6 * i & 63) & 1 for i, word in enumerate(eight))
        # Words are little-endian, so that bit n of all words is bit n % 8 of byte n // 8.
        width = {"classic": 1, "counting": 4}[layer["kind"]]
        bits = (place * width for place in places(layer, salt, low, high))
        return all(words[bit // 8] >> bit % 8 & (1 << width) - 1 for bit in bits)


if __name__ == "__main__":
    snapshot = Snapshot(sys.argv[1])
    for key in sys.argv[2:]:
        print("maybe" if snapshot.contains(key.encode()) else "absent", key)
