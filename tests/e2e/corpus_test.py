"""verify gives the right verdict on every file of the corpus, each of which keeps or breaks one rule of the spec."""
import json

import support
from support import DATA, DIFFERS, DONE, INVALID, UNSUPPORTED

CORPUS = DATA / "corpus"


class Corpus(support.EndToEnd):

    def test_verdict_of_every_file(self):
        verdicts = json.loads((CORPUS / "corpus.json").read_text())
        files = {path.name for path in CORPUS.glob("*.zt")}
        self.assertEqual(files, set(verdicts))
        self.assertEqual(len(files), 76)
        for name, entry in sorted(verdicts.items()):
            with self.subTest(name, rule=entry.get("rule")):
                process = self.run_program("verify", CORPUS / name)
                errors = process.stderr.decode()
                if entry["verdict"] == "accept":
                    self.assertEqual(process.returncode, DONE, errors)
                else:
                    self.assertIn(process.returncode, (DIFFERS, INVALID, UNSUPPORTED), errors)
                    self.assertIn(name, process.stdout.decode() + errors)

    def test_json_names_object_and_component_of_a_file_that_does_not_open(self):
        process = self.run_program("verify", "--json", CORPUS / "csr_i64.zt")
        self.assertEqual(process.returncode, DIFFERS)
        self.assertEqual(json.loads(process.stdout)["problems"],
                         [{"object": "s", "component": "indices", "message": "it is of dtype i64, indices are u64"}])

    def test_no_file_makes_inspect_fail_otherwise_than_by_saying_so(self):
        for path in sorted(CORPUS.glob("*.zt")):
            with self.subTest(path.name):
                process = self.run_program("inspect", "--json", path)
                if process.returncode == DONE:
                    self.assertIsInstance(json.loads(process.stdout), dict)
                else:
                    self.fail_with((INVALID, UNSUPPORTED), "inspect", path, says=path.name)


class Damage(support.EndToEnd):
    """A file that was good until a byte was lost or changed."""

    def setUp(self):
        super().setUp()
        import make_safetensors
        self.safetensors("i.safetensors", make_safetensors.sample(("a", "b"), "U8", (3,)))
        self.succeed("convert", self.path("i.safetensors"), "-o", self.path("good.zt"))
        self.content = self.path("good.zt").read_bytes()

    def test_cut_at_every_byte(self):
        for length in range(len(self.content)):
            self.put("cut.zt", self.content[:length])
            self.expect((DIFFERS, INVALID, UNSUPPORTED), "verify", self.path("cut.zt"))

    def test_every_byte_of_every_blob_and_of_the_frame_is_guarded(self):
        """Header magic, data and footer: any change there is found. (A changed manifest may still be a valid one.)"""
        manifest_bytes = int.from_bytes(self.content[-16:-8], "little")
        guarded = list(range(0, 8)) + list(range(len(self.content) - 16, len(self.content)))
        for entry in self.json("inspect", "--json", self.path("good.zt"))["objects"]:
            for component in entry["components"]:
                guarded += range(component["offset"], component["offset"] + component["length"])
        self.assertEqual(len(guarded), 8 + 16 + 6)
        self.assertGreater(manifest_bytes, 0)
        for at in guarded:
            changed = bytearray(self.content)
            changed[at] ^= 0x40
            self.put("changed.zt", bytes(changed))
            self.expect((DIFFERS, INVALID, UNSUPPORTED), "verify", self.path("changed.zt"))

    def test_a_changed_manifest_never_crashes(self):
        manifest_bytes = int.from_bytes(self.content[-16:-8], "little")
        start = len(self.content) - 16 - manifest_bytes
        for at in range(start, start + manifest_bytes):
            changed = bytearray(self.content)
            changed[at] ^= 0x81
            self.put("changed.zt", bytes(changed))
            self.expect((DONE, DIFFERS, INVALID, UNSUPPORTED), "verify", self.path("changed.zt"))
