"""1.2 to 2.0 to 1.2, and 0.1 to 2.0 to 0.1: every declaration and every value comes back."""
import random

import make_zt2
import support
import zt2read
import ztread
from support import DATA, DONE, INVALID, UNSUPPORTED, USAGE

FOLDERS = ("zt", "corpus", "planes")
STORAGES = [("--spec", "2.0", "--zstd", "--min-gain", "-1000"), ("--spec", "2.0", "--zstd=planes"),
            ("--spec", "2.0", "--digest", "none", "--align", "4KiB"), ("--spec", "1.2", "--zstd=planes")]


class RoundTrip(support.EndToEnd):

    chosen = random.Random(1)

    def declarations(self, path):
        """What a file declares, but for where and how its bytes lie."""
        listed = self.json("inspect", "--json", path)
        objects = {}
        for o in listed["objects"]:
            components = {c["role"]: (c["dtype"], c.get("type")) for c in o["components"]}
            objects[o["name"]] = (o["format"], o["shape"], o.get("attributes", {}), components)
        return listed.get("attributes", {}), objects

    def values(self, path):
        return {(name, role): c["bytes"] for name, o in ztread.read(str(path)).items()
                for role, c in o["components"].items()}

    def there_and_back(self, start, spec):
        """Returns False where 2.0 cannot say it, which has to be said before anything is written."""
        there, back = self.path("there.zt"), self.path("back.zt")
        for path in (there, back):
            path.unlink(missing_ok=True)
        process = self.run_program("convert", start, "-o", there, "--spec", "2.0")
        if process.returncode != DONE:
            self.assertIn(process.returncode, (USAGE, INVALID, UNSUPPORTED), process.stderr)
            self.assertFalse(there.exists())
            return False
        file = zt2read.open_file(there)
        # What 2.0 has no name for has one of ours, which another reader does not know.
        self.assertEqual([each for each in file.verify() if "'ztstream." not in each], [])
        self.succeed("verify", there)
        self.assertIsNotNone(file.content_digest())
        self.succeed("convert", there, "-o", back, "--spec", spec)
        self.assertEqual(self.declarations(back), self.declarations(start))
        self.assertEqual(self.values(back), self.values(start))
        self.assertEqual(self.run_program("diff", start, there).returncode, DONE)
        self.check_id(start, there, back)
        return True

    def check_id(self, start, *others):
        """The content digest stays, whatever version and encoding a lossless conversion writes."""
        want = self.succeed("id", start)
        for path in others:
            self.assertEqual(self.succeed("id", path), want, path.name)
        for options in self.chosen.sample(STORAGES, 2):
            again = self.path("again.zt")
            self.succeed("convert", "-q", "-f", start, "-o", again, *options)
            self.assertEqual(self.succeed("id", again), want, options)

    def test_every_fixture_that_both_sides_can_say(self):
        done, refused = {"1.2": 0, "0.1": 0}, []
        for folder in FOLDERS:
            for path in sorted((DATA / folder).glob("*.zt")):
                for spec in ("1.2", "0.1"):
                    with self.subTest(f"{folder}/{path.name}", spec=spec):
                        start = self.path("start.zt")
                        start.unlink(missing_ok=True)
                        process = self.run_program("convert", path, "-o", start, "--spec", spec)
                        if process.returncode != DONE:
                            continue  # a bad file, or one that this version cannot say
                        if self.there_and_back(start, spec):
                            done[spec] += 1
                        else:
                            refused.append(f"{folder}/{path.name} {spec}")
        self.assertGreater(done["1.2"], 30, refused)
        self.assertGreater(done["0.1"], 15, refused)
        self.assertLess(len(refused), 8, refused)

    def test_what_says_nothing_is_no_part_of_the_id(self):
        ids = set()
        for fields in ({}, {"type": "f32"}):
            file = make_zt2.File()
            file.add("t", [2], data=file.part(bytes(8), "f32", **fields))
            path = self.put("in.zt", file.finish())
            ids.add(self.succeed("id", path))
            self.check_id(path)
        self.assertEqual(len(ids), 1)
        file = make_zt2.File()
        file.add("t", [2], attributes={"a": 1}, data=file.part(bytes(8), "f32"))
        self.assertNotIn(self.succeed("id", self.put("in.zt", file.finish())), ids)
