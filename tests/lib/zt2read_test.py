#!/usr/bin/python3
"""The independent reader of 2.0 gives the corpus's verdict on every file of it. usage: zt2read_test.py DATA_FOLDER"""
import pathlib
import re
import struct
import sys
import tempfile
import unittest

import zt2read

DATA = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "data")


def verdict(path, operation):
    try:
        file = zt2read.open_file(path)
        if file.objects is None:
            return "DataShard"
        names = re.findall(r'"(.*?)"', operation)
        if operation.startswith("View"):
            file.decode(*names)
        elif operation != "Open":
            file.verify()
        return "Valid"
    except zt2read.Broken as broken:
        return f"Reject({broken.rule})"
    except zt2read.Refused:
        return "Unsupported"


class Corpus(unittest.TestCase):

    def test_verdict_and_rule_of_every_file(self):
        rows = [line.split("\t") for line in (DATA / "zt2-corpus/expect.tsv").read_text().splitlines()[1:]]
        self.assertEqual(len(rows), 76)
        for name, operation, expected in rows:
            with self.subTest(name):
                self.assertEqual(verdict(DATA / "zt2-corpus" / name, operation), expected)


class Cbor(unittest.TestCase):

    def test_what_is_encoded_decodes_and_nothing_else(self):
        value = {"a": [0, 23, 24, 255, 256, 1 << 32, -1, -(1 << 64)], "b": [1.0, 1.5e300, 3.4028234663852886e38, 1e-8],
                 "c": {"": None, "x": True, "yy": b"\0\1"}}
        encoded = zt2read.encode_cbor(value)
        self.assertEqual(zt2read.decode_cbor(encoded), value)
        for at in range(len(encoded)):
            with self.assertRaises(zt2read.Broken):
                zt2read.decode_cbor(encoded[:at])

    def test_floats_have_the_shortest_form(self):
        for wide in (b"\xfa" + struct.pack(">f", 0.5), b"\xfb" + struct.pack(">d", float("inf")), b"\xf9\x7e\x01",
                     b"\xfa" + struct.pack(">f", float("nan"))):
            with self.assertRaisesRegex(zt2read.Broken, "CborDeterminism"):
                zt2read.decode_cbor(wide)
        self.assertEqual(zt2read.decode_cbor(b"\xfa" + struct.pack(">f", 1e-10)), struct.unpack("<f", struct.pack("<f", 1e-10))[0])

    def test_32_levels(self):
        self.assertTrue(zt2read.decode_cbor(b"\x81" * 32 + b"\x00"))
        with self.assertRaisesRegex(zt2read.Broken, "CborDepth"):
            zt2read.decode_cbor(b"\x81" * 33 + b"\x00")


class Shards(unittest.TestCase):

    def test_a_shard_is_found_by_its_name_or_by_its_size_and_digest(self):
        blob = bytes(range(100))
        heap = zt2read.MAGIC.ljust(4096, b"\0") + blob
        shard = heap + zt2read.FOOTER.pack(0, 0, 0, 2, 0, zt2read.MAGIC)
        part = {"dtype": "u8", "blob": [4096, 100], "shard": "s1", "digest": zt2read.digest_of("xxh3", blob)}
        manifest = zt2read.encode_cbor({
            "shards": {"s1": {"size": len(shard), "digest": zt2read.digest_of("sha256", shard)}},
            "objects": {"t": {"shape": [100], "layout": "dense", "parts": {"data": part}}}})
        root = zt2read.MAGIC.ljust(4096, b"\0") + manifest + zt2read.FOOTER.pack(
            4096, len(manifest), zt2read.xxhash.xxh3_64_intdigest(manifest), 2, 0, zt2read.MAGIC)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "m.zt"
            path.write_bytes(root)
            with self.assertRaisesRegex(zt2read.Broken, "ShardRef"):
                zt2read.open_file(path).decode("t", "data")
            for name in ("m-s1.zt", "elsewhere.zt"):
                other = path.with_name(name)
                other.write_bytes(shard)
                self.assertEqual(zt2read.open_file(path).verify(), [])
                self.assertEqual(zt2read.open_file(path).decode("t", "data"), blob)
                other.unlink()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
