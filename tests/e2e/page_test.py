"""`ztstream inspect --html`: what the page holds, how it is published, and, where Chromium is installed, what it does in a browser.

Pictures of it, 1280 and 400 pixels wide, light and dark, are kept in the folder pictures of the build, or in ZT_SCREENSHOTS.
"""
import json
import math
import os
import pathlib
import re
import socket
import unittest

import numpy

import support
from support import EXISTS, INVALID, IO, OLD, USAGE

import browser
import make_safetensors
import make_zt

# What would end the script that holds the data, run, or turn the text around it.
HOSTILE = ["</script><script>window.ran = 1</script>", "<!--<script>", "<img src=x onerror=window.ran=2>", "\"'`${window.ran=3}",
           "line\u2028end\u2029", "turned\u202eeman", "\\u003c/script>", "null\u0000\u001b[31m", "&lt;b&gt;", "__proto__", ".", "a..b", ""]


ONE = {"w": ("F32", [1], bytes(4))}

BF16, F32 = 128 * 128 * 2, 160 * 128 * 4  # bytes of the tensors of InBrowser.model


def data_of(page):
    """The JSON in a page."""
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
    return json.loads(text)


class Page(support.EndToEnd):

    def setUp(self):
        super().setUp()
        self.source = self.safetensors("m.safetensors", metadata={"format": "pt"})

    def test_holds_what_json_prints(self):
        self.succeed("convert", "-q", "--zstd", self.source, "-o", "m.zt")
        for name in ("m.zt", self.source):
            self.succeed("inspect", "-f", "--sort", "size", name, "--html", "m.html")
            page = self.path("m.html").read_text()
            self.assertEqual(data_of(page), self.json("inspect", "--sort", "size", name, "--json"))
            self.assertTrue(page.startswith("<!doctype html>\n") and page.endswith("</html>\n"))

    def test_tied_tensors_are_named(self):
        source = self.safetensors("t.safetensors", make_safetensors.sample(["a", "b"], "F32", (3,)), ties={"c": "a"})
        objects = self.json("inspect", "--json", source)["objects"]
        self.assertEqual({each["name"]: each["components"][0].get("shares") for each in objects}, {"a": None, "b": None, "c": "a"})

    def odd_kinds(self):
        """Counted once, for the text, JSON and the page: elements of sparse tensors that are stored, packed ones as shaped."""
        index = numpy.array([[0, 1], [1, 2], [3, 3]], "<u8").tobytes()
        part = lambda dtype, data, kind=None: {"dtype": dtype, "data": data, **({"type": kind} if kind else {})}
        sparse = lambda values: {"format": "sparse_coo", "shape": [4, 4], "components": {"values": values, "coords": part("u64", index)}}
        dense = lambda shape, value, attributes={}: {"format": "dense", "shape": shape, "components": {"data": value}, "attributes": attributes}
        objects = {"bf16": sparse(part("bf16", bytes(6))), "complex": sparse(part("f32", bytes(24), "complex64")),
                   "packed": dense([3], part("u8", bytes(3), "f4_e2m1"), {"logical_shape": [2, 3]})}
        objects |= {f"odd{i}": dense([4], part("f32", bytes(16)), {"logical_shape": value})
                    for i, value in enumerate(("4", 4, {"a": 1}, None, ["x"], [[1], {}]))}
        path = self.put("k.zt", make_zt.encode_1(objects))
        want = {"bf16": ("sparse_coo", 3), "complex": ("sparse_coo", 3), "packed": ("f4_e2m1", 6)} | {f"odd{i}": ("f32", 4) for i in range(6)}
        self.assertEqual({each["name"]: (each["kind"], each["parameters"]) for each in self.json("inspect", "--json", path)["objects"]}, want)
        total = sum(count for _, count in want.values())
        self.assertIn(f" {total} parameters", self.succeed("inspect", path).decode().splitlines()[0])
        self.assertEqual(data_of(self.succeed("inspect", path, "--html", "-").decode()), self.json("inspect", "--json", path))
        return path, total

    def test_integers_beyond_2_to_53_are_exact(self):
        """JavaScript's numbers would round them: they are texts."""
        large = (1 << 53, (1 << 53) + 1, -(1 << 53) - 1, (1 << 64) - 1, -(1 << 63), 5, 1e300, 2.0**60)
        numbers = numpy.array([[0, 1 << 63], [(1 << 64) - 1, 7]], "<u8")
        path = self.put("k.zt", make_zt.encode_1({"n": {"format": "dense", "shape": [2, 2], "attributes": {"k": list(large), "\\\": 9999999999999999": "1"},
                                                        "components": {"data": {"dtype": "u64", "data": numbers.tobytes()}}}}))
        listed = data_of(self.succeed("inspect", path, "--stats", "--html", "-").decode())["objects"][0]
        plain = self.json("inspect", path, "--stats", "--json")["objects"][0]
        self.assertEqual(plain["attributes"]["k"], list(large))
        exact = [str(each) if isinstance(each, int) and abs(each) > 1 << 53 else each for each in large]
        self.assertEqual(listed["attributes"], plain["attributes"] | {"k": exact})
        self.assertEqual(listed["stats"], plain["stats"] | {"max": str((1 << 64) - 1)})

    def test_kinds_and_parameters(self):
        self.odd_kinds()

    def test_stands_alone(self):
        page = self.succeed("inspect", self.source, "--html", "-").decode()
        self.assertIn("content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';\n "
                      "base-uri 'none'; form-action 'none'\"", page)
        self.assertEqual(re.findall(r"https?:|//[a-z]|\bsrc=|\bhref=|url\(|@import|@font-face|innerHTML|\beval\b", page), [])

    def test_hostile_names(self):
        names = [name for name in HOSTILE if "\0" not in name]
        source = self.safetensors("h.safetensors", make_safetensors.sample(names, "F32", (2,)), {"</script>": "<script>"})
        page = self.succeed("inspect", source, "--html", "-").decode()
        self.assertEqual(len(re.findall(r"</script", page, re.I)), 2)
        self.assertEqual(len(re.findall(r"<script", page, re.I)), 2)
        self.assertEqual(page.count("<!--"), 1)
        self.assertEqual(re.findall("[\u2028\u2029\u202e]|<img", page), [])
        self.assertEqual({each["name"] for each in data_of(page)["objects"]}, set(names))

    def test_is_published_like_any_output(self):
        page = self.put("m.html", OLD)
        self.fail_with(EXISTS, "inspect", self.source, "--html", page, says=("m.html", "-f"))
        self.assertEqual(page.read_bytes(), OLD)
        self.assertEqual(self.expect(0, "inspect", "-f", self.source, "--html", page).stdout, b"")
        self.assertEqual(page.read_bytes(), self.succeed("inspect", self.source, "--html", "-"))
        link = self.path("link.html")
        link.symlink_to(self.source)
        index = self.path("m.safetensors.index.json")
        index.write_text(json.dumps({"weight_map": {each["name"]: self.source.name for each in self.json("inspect", "--json", self.source)["objects"]}}))
        for source, name in (self.source, self.source), (self.source, link), (index, index):
            self.fail_with(USAGE, "inspect", "-f", source, "--html", name, says=f"{name}: it is an input, and would be replaced")
        link.unlink()
        index.unlink()
        bad = self.put("bad.safetensors", b"nothing of the kind")
        self.fail_with(INVALID, "inspect", bad, "--html", "bad.html", says="bad.safetensors")
        self.fail_with(IO, "inspect", self.source, "--html", "absent/m.html", says="absent")
        self.assertEqual(self.entries(), ["bad.safetensors", "m.html", "m.safetensors"])

    def test_says_what_it_wrote(self):
        said = self.expect(0, "inspect", self.source, "--html", "m.html").stderr.decode()
        size = self.path("m.html").stat().st_size
        self.assertRegex(said, r"\Aztstream: m\.html: \d+ tensors, \d+\.\d\d KiB\n\Z")
        self.assertEqual(self.expect(0, "inspect", "-qf", self.source, "--html", "m.html").stderr, b"")
        self.assertEqual(self.json("inspect", "-f", self.source, "--html", "m.html", "--json"),
                         {"schema": "ztstream/2", "cmd": "inspect", "ok": True, "file": str(self.source),
                          "output": {"path": "m.html", "bytes": size}})
        process = self.expect(0, "inspect", self.source, "--html", "-", "--json")
        self.assertEqual(json.loads(process.stderr)["output"], {"path": "-", "bytes": len(process.stdout)})


@unittest.skipIf(browser.CHROMIUM is None, "chromium is not installed")
class InBrowser(support.EndToEnd):

    def open(self, source, *options, width=1280):
        self.succeed("inspect", source, "--html", "page.html", *options)
        self.page = browser.Browser(width=width)
        self.addCleanup(self.page.__exit__)
        self.page.open(f"file://{self.path('page.html')}")
        self.assertEqual(self.page.complaints(), [])

    def names(self):
        """Those in sight, from the top."""
        return self.page.run("""[...document.querySelectorAll('.row')].sort((a, b) => parseInt(a.style.top) - parseInt(b.style.top))
                                .map((row) => row.querySelector('.name').title)""")

    def text(self, place):
        return self.page.run(f"document.querySelector({json.dumps(place)}).innerText")

    def model(self):
        """Six tensors of bf16 that byte planes make smaller, two of f32 that nothing does."""
        weights = numpy.random.default_rng(1).normal(0, 0.02, BF16 // 2).astype("<f4")
        data = (weights.view("<u4") >> 16).astype("<u2").tobytes()
        tensors = {f"model.layers.{i}.{part}.weight": ("BF16", [128, 128], data[i:] + data[:i])
                   for i in range(3) for part in ("mlp", "attn")}
        tensors |= make_safetensors.sample(["model.embed", "norm"], "F32", (160, 128))
        source = self.safetensors("m.safetensors", tensors, {"format": "pt", "by": "<b>somebody</b>"})
        self.succeed("convert", "-q", "-f", "--zstd=planes", source, "-o", "m.zt")
        return "m.zt"

    def test_shows_filters_and_sorts(self):
        self.open(self.model())
        listing = self.json("inspect", "--json", "m.zt")
        stored = sum(part["length"] for each in listing["objects"] for part in each["components"])
        self.assertEqual(self.page.run("document.title"), "m.zt - ztstream inspect")
        self.assertTrue(self.text("#summary").startswith("zTensor 1.2.0 · 8 tensors · 139,264 parameters · "))
        self.assertEqual(self.page.run("total.stored"), stored)
        self.assertEqual(self.page.run("total.bytes"), 6 * BF16 + 2 * F32)
        saved = 100 * (1 - stored / (6 * BF16 + 2 * F32))
        self.assertGreater(saved, 10)
        self.assertTrue(self.text("#saved").endswith(f"({saved:.1f} %)"))
        self.assertEqual(self.names(), [each["name"] for each in listing["objects"]])
        self.assertEqual(self.text("#attributes dl"), "by\n<b>somebody</b>\nformat\npt")

        self.page.run("$('filter').value = 'BF16 layers.1'; $('filter').oninput()")
        self.assertEqual(self.names(), ["model.layers.1.mlp.weight", "model.layers.1.attn.weight"])
        self.assertEqual(self.text("#count"), "2 of 8 tensors")
        self.page.run("$('filter').value = ''; $('filter').oninput()")
        self.page.run("document.querySelectorAll('#head button')[3].click()")  # bytes: the largest first
        self.assertEqual(self.names()[:2], ["model.embed", "norm"])
        self.page.run("document.querySelectorAll('#head button')[0].click()")
        self.assertEqual(self.names(), sorted(each["name"] for each in listing["objects"]))

    def test_odd_numbers_and_shapes(self):
        path, total = Page.odd_kinds(self)
        self.open(path)
        self.assertIn(f" · {total} parameters · ", self.text("#summary"))
        for values in ([1e160, -1e160], [math.inf, math.nan], [2.0**63, -0.0]):
            numpy.save(self.path("n.npy"), numpy.array(values))
            self.open("n.npy", "--stats", "-f")
            self.assertEqual(self.names(), ["n"])

    def test_layers_by_size(self):
        self.open(self.model())
        areas = dict(self.page.run("boxes.map((box) => [labelOf(box.node, tree), box.w * box.h])"))
        self.assertAlmostEqual(areas["norm"] / sum(areas[name] for name in ("norm", "model")), F32 / (6 * BF16 + 2 * F32), places=3)
        def kinds():
            lines = self.page.run("[...document.querySelectorAll('#kinds tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")
            return [line[:4] for line in lines]
        self.assertEqual(kinds(), [["dtype", "tensors", "parameters", "content"], ["bf16", "6", "98,304", "192.00 KiB"],
                                   ["f32", "2", "40,960", "160.00 KiB"], ["all", "8", "139,264", "352.00 KiB"]])
        self.assertEqual(self.page.run("""(() => { const {x, y, w, h} = boxes.find((box) => box.node.part === 'norm');
            return [...$('map').getContext('2d').getImageData(x + w / 2, y + h / 2, 1, 1).data]; })()"""), [0xf2, 0xb3, 0x6b, 255])
        self.page.run("document.querySelector('[value=encoding]').click()")
        self.assertEqual([line[:2] for line in kinds()], [["encoding", "tensors"], ["planes", "6"], ["raw", "2"], ["all", "8"]])
        self.page.run("show(tree.children.get('model'))")
        self.assertEqual(self.text("#count"), "7 of 8 tensors")
        self.assertEqual(self.page.run("[...document.querySelectorAll('#path button')].map((each) => each.textContent)"),
                         ["all", "model"])
        self.page.run("document.querySelector('#path button').click()")
        self.assertEqual(self.text("#count"), "8 tensors")
        self.page.run("document.querySelector('.row').click()")
        self.assertEqual(self.page.run("JSON.parse($('detail').querySelector('pre').textContent).name"), self.names()[0])

    def test_layers_fold_by_dots_and_slashes(self):
        names = ["enc/0/w", "enc/1/w", "enc.0/w", "encoder/w", "enc", "deep" + "/x" * 40]
        self.open(self.safetensors("s.safetensors", make_safetensors.sample(names, "F32", (64, 64))))
        self.assertCountEqual(self.page.run("[...tree.children.keys()]"), ["enc", "encoder", "deep"])
        self.assertCountEqual(self.page.run("[...tree.children.get('enc').children.keys()]"), ["/0", "/1", ".0"])
        self.page.run("show(tree.children.get('enc').children.get('/0'))")
        self.assertEqual(self.names(), ["enc/0/w"])
        self.assertEqual(self.page.run("[...document.querySelectorAll('#path button')].map((each) => each.textContent)"),
                         ["all", "enc", "/0"])
        self.page.run("show(tree.children.get('enc'))")
        self.assertCountEqual(self.names(), names[:3] + ["enc"])
        self.assertCountEqual(self.page.run("boxes.map((box) => labelOf(box.node, tree.children.get('enc')))"),
                              ["0/w", "1/w", "0/w"])

    def test_hostile_names_are_text(self):
        names = [name for name in HOSTILE if "\0" not in name]
        source = self.safetensors("h.safetensors", make_safetensors.sample(names, "F32", (2,)), {"<script>window.ran = 4</script>": "<b>"})
        self.open(source)
        self.assertIsNone(self.page.run("window.ran"))
        shown = [name.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u202e", "\\u202e") for name in names]
        self.assertEqual(sorted(self.names()), sorted(shown))
        self.page.run("rows.forEach((row) => { showDetail(row); $('detail').close(); })")
        self.assertEqual(self.page.run("document.querySelectorAll('img, #attributes b, #rows script').length"), 0)
        self.assertIsNone(self.page.run("window.ran"))

    def test_no_request_leaves_it(self):
        self.open(self.model())
        address = f"file://{self.path('page.html')}"
        self.assertEqual(self.page.requests(), [address])
        with socket.create_server(("127.0.0.1", 0)) as server:  # nor does one that a script in it would make
            server.settimeout(1)
            url = f"http://127.0.0.1:{server.getsockname()[1]}/"
            self.assertEqual(self.page.run(f"fetch('{url}').then(() => 'sent', () => 'refused')"), "refused")
            self.assertEqual(self.page.run(f"new Promise((done) => {{ const image = new Image(); image.onload = () => done('sent'); "
                                           f"image.onerror = () => done('refused'); image.src = '{url}'; }})"), "refused")
            with self.assertRaises(TimeoutError):
                server.accept()

    def test_a_hundred_thousand_tensors(self):
        names = [f"model.layers.{i // 500}.mlp.experts.{i % 500}.weight" for i in range(100_000)]
        source = self.safetensors("many.safetensors", {name: ("U8", [4], b"1234") for name in names})
        self.open(source)
        self.assertLess(self.page.seconds(), 3)
        self.assertEqual(self.text("#count"), "100,000 tensors")
        self.assertLess(self.page.run("document.querySelectorAll('*').length"), 1500)
        self.page.run("new Promise((done) => { $('rows').scrollTop = 1e9; setTimeout(done, 100); })")
        self.assertEqual(self.names()[-1], names[-1])

    def test_fits_the_screen(self):
        layers = {f"model.layers.{i}.{part}.weight": ("BF16", [64, 128 >> (i % 3)], bytes(128 * (128 >> (i % 3))))
                  for i in range(12) for part in ("mlp.gate_proj", "self_attn.q_proj")}
        source = self.safetensors("m.safetensors", layers | {"model.embed_tokens.weight": ("BF16", [64000, 2], bytes(256000))},
                                  {"format": "pt", "long": "0123456789abcdef" * 500})
        folder = pathlib.Path(os.environ.get("ZT_SCREENSHOTS") or pathlib.Path(support.PROGRAM).parents[1] / "pictures")
        folder.mkdir(exist_ok=True)
        self.succeed("convert", "-q", source, "-o", "m.zt", "--zstd")
        for width in (1280, 400):
            self.open("m.zt", "-f", width=width)
            self.assertEqual(self.page.run("document.documentElement.scrollWidth"), width)
            self.assertEqual(self.page.run("""[...document.querySelectorAll('.row > *, #under, #summary, #saved, .wide')]
                .filter((each) => each.scrollWidth > each.clientWidth + 1 || each.textContent.includes('…')).map((each) => each.textContent)"""), [])
            for scheme in ("light", "dark"):
                self.page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                self.page.screenshot(str(folder / f"page-{width}-{scheme}.png"))

    def test_layers_run_in_their_own_order(self):
        sizes = {f"model.layers.{i}.w": ("BF16", [64, 64 << (i % 2)], bytes(8192 << (i % 2))) for i in (10, 2, 0, 1, 11, 3, 9, 4, 8, 5, 7, 6)}
        for width in (1280, 400):
            self.open(self.safetensors("l.safetensors", sizes), "-f", width=width)
            places = self.page.run("boxes.filter((box) => box.node.row).map((box) => [Math.round(box.y), box.x, labelOf(box.node, tree)])")
            self.assertEqual([name for _, _, name in sorted(places)], [f"model.layers.{i}.w" for i in range(12)])

    def test_colours_tell_something(self):
        """Where all is of one type: by encoding, else by what was saved, else by the share."""
        tensors = make_safetensors.sample(["a", "b"], "F32", (64, 64)) | {"c": ("F32", [4], bytes(16))}
        source = self.safetensors("c.safetensors", tensors | {"zeros": ("F32", [9000], bytes(36000))})
        self.succeed("convert", "-q", source, "--zstd", "-o", "c.zt")
        self.succeed("convert", "-q", source, "--zstd", "--include", "zeros", "--include", "^a", "--min-gain=-100", "-o", "d.zt")
        for path, by, kinds in ((source, "share", ["over 20 %", "under 0.1 %"]), ("c.zt", "encoding", ["zstd", "raw"]), ("d.zt", "saved", ["over 60 %"])):
            self.open(path, "-f")
            self.assertEqual(self.page.run("document.querySelector('#colours :checked').value"), by)
            self.assertLessEqual(set(kinds), set(self.page.run("[...document.querySelectorAll('#kinds tbody td:first-child')].map((each) => each.textContent)")))
            saved = by != "share"
            self.assertEqual(self.page.run("[...document.querySelectorAll('#colours label')].map((each) => each.hidden)"), [False, False, not saved, False])
            self.assertEqual(self.text("#layers"), "Layers by size" + " before compression" * saved)
            self.assertTrue(self.text("#summary").endswith(" stored"))

    def test_long_attributes_are_folded(self):
        self.open(self.safetensors("f.safetensors", ONE, {"short": "s" * 120, "long": "<i>" + "x" * 5000}))
        self.assertEqual(self.page.run("[...document.querySelectorAll('#attributes details')].map((each) => [each.open, each.firstChild.textContent])"),
                         [[False, "<i>" + "x" * 57 + "… (5,003 characters)"]])
        self.assertLess(self.page.run("$('attributes').offsetHeight"), 250)

    def test_statistics_where_the_data_has_them(self):
        self.succeed("inspect", self.model(), "--html", "page.html")
        page = self.path("page.html")
        text = page.read_text()
        listing = data_of(text)
        statistics = {"min": -1.5, "max": "inf", "mean": 0.00001234, "std": 0.25, "zeros": 12345, "nan": 0, "inf": 1}
        listing["objects"][0]["stats"] = statistics
        page.write_text(re.sub(r'(application/json">).*?(</script>)', lambda found: found[1] + json.dumps(listing) + found[2], text,
                               count=1, flags=re.S))
        self.page = browser.Browser()
        self.addCleanup(self.page.__exit__)
        self.page.open(f"file://{page}")
        self.assertEqual(self.page.run("[...document.querySelectorAll('#head .extra')].map((each) => each.textContent)"), list(statistics))
        self.assertEqual(self.page.run("[...document.querySelectorAll('.row')[0].querySelectorAll('.extra')].map((each) => each.textContent)"),
                         ["-1.5", "inf", "1.23e-5", "0.25", "12,345", "0", "1"])
        self.assertEqual(self.page.run("[...document.querySelectorAll('.row')[1].querySelectorAll('.extra')].map((each) => each.textContent)"),
                         [""] * 7)
