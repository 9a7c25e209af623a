"""What would help about an error: the program, the C interface and Python name the same fault, each with words of its own."""
import ctypes
import json
import os
import pathlib
import subprocess
import unittest
from ctypes import byref, c_void_p, sizeof

import numpy
from package_support import DATA, Case, ztstream
from ztstream import _c, _errors


def messages_of(raised):
    """(what C says, the names of the advice) of the last call that failed, which `raised` is of."""
    return _c.c.last_error().decode(), _c.c.last_error_advice(None).decode(), str(raised)


class Advice(Case):
    def said(self, command, *words):
        """The error of the program, which is the same in its line and its JSON."""
        done = subprocess.run([os.environ["ZTSTREAM_PROGRAM"], command, "--json", *map(str, words)], capture_output=True, text=True,
                              check=False)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(done.stderr.splitlines()[-1], "ztstream: " + error["message"])
        return error

    def opened(self, path, memory=0):
        """Opens and reads as C does; the exception is the package's."""
        options, reader = _c.ReaderOptions(), c_void_p()
        _c.c.reader_options_init(byref(options), sizeof(options))
        options.memory_bytes = memory or options.memory_bytes
        paths = (ctypes.c_char_p * 1)(os.fsencode(path))
        _c.check(_c.c.reader_open_all(paths, 1, byref(options), byref(reader)))
        self.addCleanup(_c.c.reader_free, reader)
        wanted = (_c.Range * 1)(_c.Range(0, 0, 0, 0, None))
        _c.check(_c.c.reader_read_many(reader, wanted, 1, sizeof(_c.Range), None))

    def folder_of(self, name, **files):
        """A folder; a text is where a link leads."""
        folder = self.folder / name
        folder.mkdir()
        for file, content in files.items():
            path = folder / (file.replace("_", "."))
            if isinstance(content, str):
                path.symlink_to(content)
            else:
                numpy.save(path, content) if path.suffix == ".npy" else path.write_bytes(content)
        return str(folder)

    def test_of_the_library(self):
        numpy.save(self.path("void.npy"), numpy.zeros(2, "V2"))
        numpy.savez(self.path("text.npz"), t=numpy.array(["a"]))
        numpy.savez(self.path("csr.npz"), indptr=[0, 20_000], indices=numpy.arange(20_000)[::-1], data=numpy.ones(20_000),
                    shape=[1, 20_000], format=b"csr")
        ztstream.save_file({"w": numpy.zeros(3)}, self.path("there.zt"))
        small = self.path("a.npy")
        numpy.save(small, numpy.zeros(2))
        link, both = self.folder_of("link", a_npy=small), self.folder_of("both", a_npy=numpy.zeros(2), b_gguf=(
            DATA / "gguf/little.gguf").read_bytes())

        header = b'{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}'
        half = len(header).to_bytes(8, "little") + header + b"12"
        variants = self.folder_of("variants", model_fp16_safetensors=half, model_bf16_safetensors=half)
        with ztstream.open(variants, variant="fp16") as file:
            self.assertEqual((list(file), file["a"].dtype), (["a"], "f16"))

        ztstream.save_file({"w": numpy.zeros(3)}, self.path("gone.zt"))
        ztstream.convert(self.path("there.zt"), self.path("delta.zt"), base=self.path("gone.zt"))
        pathlib.Path(self.path("gone.zt")).unlink()

        def convert(source, *words):
            return lambda: self.said("convert", source, "-o", self.path("o.zt"), *words)
        rows = (  # what helps, how the program, C and Python come to it, their words
            ("void_dtype", convert(self.path("void.npy")), lambda: self.opened(self.path("void.npy")),
             "name it with --npy-void", "zts_reader_options.npy_void names it", "name it with npy_void="),
            ("follow_links", convert(link), lambda: self.opened(link),
             "--follow-links allows that", "zts_reader_options.follow_links allows that", "follow_links=True allows that"),
            ("format", convert(both), lambda: self.opened(both),
             "--from chooses a format", "zts_reader_options.format chooses a format", "format= chooses a format"),
            ("variant", convert(variants), lambda: self.opened(variants),
             "--variant chooses one", "zts_reader_options.variant chooses one", "variant= chooses one"),
            ("base", convert(self.path("delta.zt")), lambda: self.opened(self.path("delta.zt")),
             "--base names it", "zts_reader_options.base names it", "base= names it"),
            ("memory", convert(self.path("csr.npz"), "--memory", "64KiB"), lambda: self.opened(self.path("csr.npz"), 1 << 16),
             "--memory raises the limit", "zts_reader_options.memory_bytes raises the limit", ""),
            ("exclude", convert(self.path("text.npz")), lambda: self.opened(self.path("text.npz")), "--exclude leaves it out", "", ""),
            ("replace", lambda: self.said("convert", small, "-o", self.path("there.zt")),
             lambda: ztstream.save_file({"w": numpy.zeros(3)}, self.path("there.zt")),
             "use -f to replace it", "zts_writer_options.overwrite replaces it", "overwrite=True replaces it"))
        for advice, program, library, *words in rows:
            with self.subTest(advice):
                error = program()
                self.assertEqual(error["advice"], {advice: words[0]})
                fact = error["message"].removesuffix("; " + words[0])
                with self.assertRaises(ztstream.Error) as raised:
                    library()
                self.assertEqual(messages_of(raised.exception), (fact + ("; " + words[1] if words[1] else ""), advice,
                                                                 fact + ("; " + words[2] if words[2] else "")))
                self.assertNotIn("--", fact)

    def test_of_the_program(self):
        """What only commands can do: from Python, their options are arguments."""
        out, x = self.path("o.zt"), self.path("x.zt")
        ztstream.save_file({"w": numpy.array([0.5, 1e9]), "n" * 70: numpy.zeros(1), "c": numpy.zeros(2, "c8")}, x, attributes={"k": 1})
        numpy.savez(self.path("text.npz"), t=numpy.array(["a"]))
        llama = DATA / "gguf/little.gguf"
        rows = (
            ("exclude", "convert", self.path("text.npz"), {"output": out}, "exclude= leaves it out"),
            ("allow_loss", "convert", x, {"output": out, "dtype": "w=i32"}, "allow_loss=True drops fractions"),
            ("on_overflow", "convert", x, {"output": out, "dtype": "w=f16"}, 'choose on_overflow="inf" or "saturate", or another type'),
            ("metadata", "convert", x, {"output": out, "spec": "0.1"}, "no_metadata=True leaves them out"),
            ("frames", "convert", x, {"output": out, "spec": "2.0", "zstd": True, "chunk": "1GiB"}, "chunk= sets their size"),
            ("replace", "convert", x, {"output": x}, "force=True replaces it"),
            ("rename", "extract", x, {"output": self.path("o.gguf"), "exclude": "c"}, "rename= gives it another name"),
            ("dequantize", "extract", llama, {"output": self.path("o.safetensors")}, "dequantize= makes numbers of it"))
        for advice, command, source, options, words in rows:
            with self.subTest(advice):
                said = [f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}") for key, value in options.items()]
                error = self.said(command, *said, "--", source)
                self.assertEqual(list(error["advice"]), [advice])
                fact = error["message"].removesuffix("; " + error["advice"][advice])
                rest = {key: value for key, value in options.items() if key != "output"}
                with self.assertRaises(ztstream.Error) as raised:
                    getattr(ztstream, command)(source, options["output"], **rest)
                self.assertEqual(str(raised.exception), f"{fact}; {words}")
                self.assertNotIn("--", fact)

    def test_only_what_the_command_has(self):
        """`show` leaves nothing out."""
        numpy.savez(self.path("text.npz"), t=numpy.array(["a"]))
        self.assertNotIn("advice", self.said("show", self.path("text.npz"), "t"))

    def test_beside_findings_and_warnings(self):
        x = self.path("x.zt")
        ztstream.save_file({"w": numpy.zeros(3)}, x)
        self.assertTrue(ztstream.verify(x, canonical=True)["problems"][0]["message"].endswith(
            "has no canonical form (zTensor 2.0 §6.3); 'ztstream convert --spec 2.0 --canonical' writes one"))
        for name in "ab":
            folder = pathlib.Path(self.folder_of(name))
            numpy.save(folder / f"{name}.npy", numpy.zeros(2))
            (folder / "optimizer.pt").write_bytes(b"state")
        found = ztstream.convert([self.path("a"), self.path("b")], self.path("o.zt"))
        self.assertEqual(found["left_out"][0]["why"], "there are several inputs; --files all takes all of them")
        self.assertIn("left out: optimizer.pt: there are several inputs; --files all takes all of them", found["warnings"])

    def test_tables(self):
        """Whatever a table words, the library can say."""
        names = set((pathlib.Path(__file__).parents[2] / "modules/core/status.cc").read_text().split('kAdviceNames[] = {')[1]
                    .split("}")[0].replace('"', " ").replace(",", " ").split())
        self.assertLessEqual(set(_errors.OF_THE_LIBRARY) | set(_errors.OF_THE_PROGRAM), names)


if __name__ == "__main__":
    unittest.main()
