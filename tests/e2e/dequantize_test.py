"""--dequantize: the numbers of quantized checkpoints, compared with numpy's; what contradicts itself is refused."""
import json
import os
import shutil

import numpy

import make_safetensors
import quantized
import support
from support import DATA, DONE, EXISTS, INVALID, UNSUPPORTED, USAGE

COUNT = int(os.environ.get("ZT_COUNT", 200))  # tensors of each scheme
TYPES = {"f32": ("F32", "<u4", 0x7f800000, 0x7fc00000), "bf16": ("BF16", "<u2", 0x7f80, 0x7fc0), "f16": ("F16", "<u2", 0x7c00, 0x7e00)}


def rounded(numbers, kind):
    if kind == "f32":
        return numbers.view("<u4")
    with numpy.errstate(over="ignore"):
        return quantized.to_bf16(numbers) if kind == "bf16" else numbers.astype("<f2").view("<u2")


def overflowing(numbers, kind):
    """How many numbers do not fit the type."""
    _, bits, infinity, _ = TYPES[kind]
    return int(numpy.count_nonzero((rounded(numpy.ascontiguousarray(numbers), kind) & numpy.dtype(bits).type((1 << (8 * numpy.dtype(bits).itemsize - 1)) - 1)) == infinity))


class Base(support.EndToEnd):
    def pair(self, name):
        tensors, metadata = make_safetensors.read(DATA / "quantized" / f"{name}_1.in.safetensors")
        return tensors, json.loads(metadata["config"])["quantization_config"]

    def write_model(self, tensors, config, shards=1, name="model"):
        """A folder as hubs have it. The tensors go to shards in turn, so that scales lie in others than their codes."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        whole = {"architectures": ["M"], "quantization_config": config, "vocab_size": 7}
        (folder / "config.json").write_text(json.dumps(whole, indent=2))
        if shards == 1:
            make_safetensors.write(folder / "model.safetensors", tensors)
            return folder
        weight_map = {}
        for shard in range(shards):
            file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
            part = {key: tensors[key] for key in sorted(tensors)[shard::shards]}
            make_safetensors.write(folder / file, part)
            weight_map |= {key: file for key in part}
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return folder

    def good(self, *arguments):
        done = self.run_program(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        return done

    def check(self, tensors, numbers, kind, where, saturated=False):
        dtype, bits, infinity, nan = TYPES[kind]
        for name, want in numbers.items():
            is_dtype, shape, data = tensors[name]
            self.assertEqual((is_dtype, shape), (dtype, list(want.shape)), (where, name))
            is_bits, want = numpy.frombuffer(data, bits), rounded(numpy.ascontiguousarray(want), kind).reshape(-1)
            magnitude = want.dtype.type((1 << (8 * want.itemsize - 1)) - 1)
            if saturated:
                want = numpy.where((want & magnitude) == infinity, want - want.dtype.type(1), want)
            want = numpy.where((want & magnitude) > infinity, nan, want)  # every NaN is the positive quiet one
            wrong = numpy.flatnonzero(is_bits != want)
            self.assertEqual(wrong.size, 0, (where, name, wrong[:5], is_bits[wrong[:5]], want[wrong[:5]]))

    def extracted(self, source, name="out"):
        out = self.folder / name
        shutil.rmtree(out, ignore_errors=True)
        self.good("extract", source, "--to", "safetensors", "-q", "-o", f"{out}/")
        return out


class Numbers(Base):
    def piped(self, model, *rule):
        """The numbers of one file of a folder, through a pipe."""
        done = self.run_program("convert", model / "model.safetensors", *rule, "-o", "-")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        (self.folder / "pipe.zt").write_bytes(done.stdout)
        return self.numbers_of("pipe.zt")

    def between(self, model, *rule):
        self.good("convert", model, "-q", "-f", "-o", "q.zt")
        self.good("convert", "q.zt", *rule, "-f", "-o", "m2.zt")
        return self.numbers_of("m2.zt")

    def to_folder(self, model, *rule):
        shutil.rmtree(self.folder / "dense", ignore_errors=True)
        self.good("convert", model, *rule, "--to", "safetensors", "-o", "dense/")
        return {name: data for name, (_, _, data) in make_safetensors.read(self.folder / "dense/model.safetensors")[0].items()}

    def numbers_of(self, file):
        objects = support.read_zt(self.folder / file)["objects"]
        return {name: each["components"]["data"]["bytes"] for name, each in objects.items() if not name.startswith("__meta__/")}

    def test_the_pairs_of_every_scheme(self):
        """From a folder to a .zt file in each type; with one of the other ways, with a large ZT_COUNT with all of them."""
        ways = self.piped, self.between, self.to_folder
        for number, path in enumerate(sorted((DATA / "quantized").glob("*.in.safetensors"))):
            tensors, metadata = make_safetensors.read(path)
            expected, _ = make_safetensors.read(str(path).replace(".in.", ".out."))
            model = self.write_model(tensors, json.loads(metadata["config"])["quantization_config"])
            for turn, kind in enumerate(TYPES):
                self.good("convert", model, "--dequantize", kind, "-q", "-f", "-o", "m.zt")
                found = self.numbers_of("m.zt")
                want = {name.split("#")[0]: data for name, (_, _, data) in expected.items() if name.endswith("#" + kind)}
                self.assertTrue(want)
                self.assertFalse(set(tensors) - set(found) - {n for n in tensors if "_bias" not in n and "norm" not in n
                                                              and not n.endswith(".bias")})
                for name, data in want.items():
                    self.assertEqual(found[name], data, (path.name, kind, name))
                self.assertFalse([n for n in found if "scale" in n or "zeros" in n or "g_idx" in n or "SCB" in n])
                for way in ways if COUNT > 200 else [ways[(number + turn) % 3]]:
                    self.assertEqual(way(model, "--dequantize", kind, "-q"), found, (path.name, kind, way))

    def test_random_tensors_of_every_scheme(self):
        """Shapes that do not divide, scales in other shards, little memory, 1, 2 and 8 threads, each type, numbers that do not fit."""
        quantized.HUGE = .1
        self.addCleanup(setattr, quantized, "HUGE", 0.)
        for number, (name, scheme) in enumerate(quantized.SCHEMES.items()):
            done, run = 0, 0
            while done < COUNT:
                rng = numpy.random.default_rng([number, run])
                config, add = scheme(rng)
                tensors, numbers = {}, {}
                for i in range(min(25, COUNT - done)):
                    numbers |= add(tensors, f"model.layers.{i}.m")
                done += 25
                model = self.write_model(tensors, config, shards=1 + (run + run // 9) % 3)
                kind = list(TYPES)[run % 3]
                memory = ["64KiB", "1MiB", "32MiB"][run // 3 % 3]
                rule = ["inf", "saturate"][(run + run // 6) % 2]
                with self.subTest(scheme=name, run=run, config=config):
                    result = self.run_program("convert", model, "--dequantize", kind, "--on-overflow", rule, "--json", "-f", "-o", "m.zt",
                                                "--threads", [1, 2, 8][(run + run // 3) % 3], "--memory", memory)
                    self.assertEqual(result.returncode, DONE, result.stderr)
                    counted = {each["tensor"]: each["overflow"] for each in json.loads(result.stdout)["numeric"] if each["overflow"]}
                    want = {key: overflowing(each, kind) for key, each in numbers.items() if overflowing(each, kind)}
                    self.assertEqual(counted, want)
                    out = self.extracted("m.zt")
                    found, _ = make_safetensors.read(out / "model.safetensors")
                    self.check(found, numbers, kind, (name, run), saturated=rule == "saturate")
                    if any(overflowing(each, kind) for each in numbers.values()):
                        self.assertEqual(self.run_program("convert", model, "--dequantize", kind, "-q", "-f", "-o", "e.zt").returncode, support.NUMERIC)
                    if run == 0:
                        self.good("verify", "m.zt", "--against", model, "--dequantize", kind, "--on-overflow", rule, "-q")
                run += 1

    def test_memory(self):
        """Large tensors of holes, by blocks and transposed, take the window and not more than 96 MiB beside it."""
        gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
        for config, parts in (
                (self.pair("deepseek_fp8")[1], {"weight": ("F8_E4M3", [16384, 16384]), "weight_scale_inv": ("F32", [128, 128])}),
                (gptq, {"qweight": ("I32", [2048, 16384]), "scales": ("F16", [128, 16384]), "qzeros": ("I32", [128, 2048])})):
            at, header, model = 0, {}, self.write_model({}, config)
            for layer in range(2):
                for part, (dtype, shape) in parts.items():
                    size = int(numpy.prod(shape)) * {"F8_E4M3": 1, "F16": 2}.get(dtype, 4)
                    header[f"model.layers.{layer}.m.{part}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
                    at += size
            text = json.dumps(header).encode()
            with open(model / "model.safetensors", "wb") as file:
                file.write(len(text).to_bytes(8, "little") + text)
                file.truncate(8 + len(text) + at)
            status, _, memory = self.costs("convert", model, "--dequantize", "bf16", "-q", "-o", "-", "--threads", "2", "--memory", "64MiB")
            self.assertEqual(status, 0, config)
            self.assertLess(memory, 64 + 96, config)

    def test_the_result_is_a_checkpoint(self):
        config, add = quantized.fp8_blocks(numpy.random.default_rng(5))
        tensors = {"model.norm.weight": ("BF16", [4], b"12345678")}
        numbers = add(tensors, "model.layers.0.up_proj")
        model = self.write_model(tensors, config, shards=2)
        self.good("convert", model, "--dequantize", "bf16", "--on-overflow", "inf", "-q", "-o", "m.zt")
        out = self.extracted("m.zt")
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["config.json", "model.safetensors"])
        self.assertEqual(json.loads((out / "config.json").read_text()),
                         {"architectures": ["M"], "torch_dtype": "bfloat16", "vocab_size": 7})
        found, _ = make_safetensors.read(out / "model.safetensors")
        self.assertEqual(set(found), {"model.norm.weight", *numbers})
        self.assertEqual(found["model.norm.weight"][2], b"12345678")
        self.check(found, numbers, "bf16", "folder")

    def test_shards_of_other_scales_are_not_kept(self):
        """Codes and scales lie in files of their own, of which one is replaced."""
        blocks = {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}
        codes = ("F8_E4M3", [128, 128], bytes(range(64)) * 256)
        for scale in (1, 5):
            folder = self.write_model({"a.weight": codes, "a.weight_scale_inv": ("F32", [1, 1], numpy.float32(scale).tobytes())}, blocks, 2,
                                      f"model{scale}")
        whole = ("convert", folder, "--dequantize", "f32", "-o", self.path("m.zt"), "--shards", "1")
        self.succeed(*whole)
        self.succeed(*whole)
        shard = "model-00002-of-00002.safetensors"
        shutil.copy(self.path("model1") / shard, folder / shard)
        self.fail_with(EXISTS, *whole, says="belongs to other shards")

    def test_folder_to_folder(self):
        """convert --to safetensors, and extract, without a .zt file between; in shards, too."""
        config, add = quantized.fp8_blocks(numpy.random.default_rng(6))
        tensors, numbers = {}, {}
        for i in range(5):
            numbers |= add(tensors, f"l.{i}.m")
        model = self.write_model(tensors, config, shards=3)
        for number, command in enumerate((["convert", model, "--to", "safetensors"],
                                          ["extract", model, "--to", "safetensors", "--shard-size", "100kB"])):
            out = self.folder / f"out{number}"
            self.good(*command, "--dequantize", "bf16", "--on-overflow", "inf", "-q", "-o", f"{out}/")
            found = {}
            for path in out.glob("*.safetensors"):
                found |= make_safetensors.read(path)[0]
            self.assertEqual(set(found), set(numbers))
            self.check(found, numbers, "bf16", command)
            self.assertNotIn("quantization_config", json.loads((out / "config.json").read_text()))
            index = out / "model.safetensors.index.json"
            self.assertEqual(index.exists(), number == 1)
            if number == 1:
                self.assertEqual(set(json.loads(index.read_text())["weight_map"]), set(numbers))
        for wrong, words in (["-o", "x"], "end its name with /"), (["-o", "x/", "--zstd"], "--to writes no .zt file; leave it or --zstd out"), \
                (["-o", "x/", "--spec", "2.0"], "--to writes no .zt file; leave it or --spec out"):
            done = self.run_program("convert", model, "--to", "safetensors", *wrong)
            self.assertEqual(done.returncode, USAGE)
            self.assertIn(words, done.stderr.decode())

    def test_inspect_names_the_schemes(self):
        for scheme, words in [("fp8_blocks", "fp8 blocks, 8 bits, blocks of 128x128: 3 tensors"),
                              ("gptq", "bits, "), ("bnb_int8", "bitsandbytes int8, 8 bits, a scale a row: 3 tensors"),
                              ("gpt_oss", "mxfp4, 4 bits, groups of 32: 3 tensors")]:
            config, add = quantized.SCHEMES[scheme](numpy.random.default_rng(4))
            if scheme == "fp8_blocks":
                config["weight_block_size"][:] = [128, 128]
            tensors = {}
            for i in range(3):
                add(tensors, f"l.{i}.m")
            model = self.write_model(tensors, config)
            self.run_program("convert", model, "-q", "-f", "-o", "m.zt")
            for source in (model, model / "model.safetensors", "m.zt"):
                text = self.good("inspect", source).stdout.decode()
                self.assertIn(f"  quantized: ", text)
                self.assertIn(words, text)
                listing = json.loads(self.good("inspect", source, "--json").stdout)
                self.assertEqual(sum(listing["quantized"].values()), 3)
                each = [entry["quantized"] for entry in listing["objects"] if "quantized" in entry]
                self.assertEqual((len(each), set(each)), (3, set(listing["quantized"])))
                rows = sum(text.count(scheme) for scheme in set(each))  # of the codes, and the sums
                self.assertEqual(rows, 3 + len(set(each)))
                # Each of its parts, as it is shown; what contradicts itself is shown without it.
                for part in [name for name in tensors if name.startswith("l.1.m") and not name.endswith("bias")]:
                    if "weight_format" in part or "quant_state" in part:
                        continue
                    self.assertEqual(json.loads(self.good("show", source, part, "--json").stdout)["scheme"], each[1])
                    said = self.run_program("show", source, part).stderr.decode()
                    self.assertIn(f"tensor '{part}' is part of a quantized tensor, 'l.1.m", said)
                    self.assertIn(f" ({each[1]}), and is shown as it is stored; convert --dequantize makes numbers of it\n", said)
                    self.assertEqual(self.good("show", source, part, "-q").stderr, b"")

    def test_config_texts(self):
        """Only what is said of the quantization goes; the rest of the text stays."""
        tensors, metadata = make_safetensors.read(DATA / "quantized" / "ct_int8_1.in.safetensors")
        quantization = json.dumps(json.loads(metadata["config"])["quantization_config"])
        model = self.write_model(tensors, {})
        for text, want in [
                ('{"a": "}\\"", "quantization_config": @, "b": [1.50, {}]}', '{"a": "}\\"", "torch_dtype": "float16", "b": [1.50, {}]}'),
                ('{"torch_dtype": "float32",\n "quantization_config": @}\n', '{"torch_dtype": "float16"}\n'),
                ('{"quantization_config": @,\n "x": 1, "dtype": null}', '{"x": 1, "dtype": "float16"}'),
                ('{"x": 1, "quantization_config": @, "dtype" : "bfloat16" }', '{"x": 1, "dtype" : "float16" }'),
                ('{"torch_dtype": "float32", "quantization_config": @, "expert_dtype": "fp4"}', '{"torch_dtype": "float16"}'),
                ('{"expert_dtype": 1, "x": 1, "quantization_config": @, "compression_config": {}}',
                 '{"torch_dtype": "float16", "x": 1}'),
                ('{"quantization_config": @}', '{"torch_dtype": "float16"}'),
                # Within a part of the model: its own types change, those of other parts stay.
                ('{"text_config": {"quantization_config": @, "dtype": "x"}, "vision_config": {"dtype": "y"}}',
                 '{"torch_dtype": "float16", "text_config": {"dtype": "float16"}, "vision_config": {"dtype": "y"}}'),
                ('{"dtype": 1, "thinker_config": {"a": 1, "text_config": {"b": 2, "quantization_config": @}}}',
                 '{"dtype": "float16", "thinker_config": {"a": 1, "text_config": {"b": 2}}}'),
                ('{"dtype": 1, "quantization_config": @, "text_config": {"compression_config": @}, "llm_config": {}}',
                 '{"dtype": "float16", "text_config": {}, "llm_config": {}}'),
                # A quantization of the whole is that of its parts.
                ('{"dtype": 1, "quantization_config": @, "text_config": {"torch_dtype": "x", "y_config": {"dtype": 2}}}',
                 '{"dtype": "float16", "text_config": {"torch_dtype": "float16", "y_config": {"dtype": "float16"}}}'),
                # The rest may be what other tools alone read.
                ('{"dtype": 1, "a": [0.0, Infinity, -Infinity, NaN], "quantization_config": @, "b": "NaN"}',
                 '{"dtype": "float16", "a": [0.0, Infinity, -Infinity, NaN], "b": "NaN"}'),
                ('{"dtype": 1, "a": 1, "a": %s1%s, "quantization_config": @}' % ("[" * 99, "]" * 99),
                 '{"dtype": "float16", "a": 1, "a": %s1%s}' % ("[" * 99, "]" * 99)),
                ('{"dtype": 1, "quantization\\u005fconfig": @, "x": 1}', '{"dtype": "float16", "x": 1}')]:
            (model / "config.json").write_text(text.replace("@", quantization))
            self.good("convert", model, "--dequantize", "f16", "-q", "-f", "-o", "m.zt")
            self.assertEqual((self.extracted("m.zt") / "config.json").read_text(), want)

    def test_zt_inputs_and_groups(self):
        """The tensors as .zt, compressed, with other digests, or grouped: the same numbers."""
        for scheme in ("fp8_blocks", "gptq", "awq", "ct_pack", "gpt_oss", "ct_nvfp4"):
            rng = numpy.random.default_rng(3)
            config, add = quantized.SCHEMES[scheme](rng)
            while scheme == "ct_pack" and config["config_groups"]["group_0"]["weights"]["num_bits"] not in (2, 4, 8):
                config, add = quantized.SCHEMES[scheme](rng)  # --quant group groups these alone
            tensors, numbers = {}, {}
            for i in range(4):
                numbers |= add(tensors, f"l.{i}.m")
            model = self.write_model(tensors, config)
            ways = [["--zstd=3"], ["--digest", "sha256"], ["--spec", "2.0"]]
            ways += [["--quant", "group"], ["--quant", "group", "--files", "none"]] * (scheme in ("gptq", "awq", "ct_pack"))
            for way in ways:
                with self.subTest(scheme=scheme, way=way):
                    done = self.run_program("convert", model, *way, "-q", "-f", "-o", "q.zt")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    source = [self.folder / "q.zt"]
                    self.good("convert", *source, "--dequantize", "bf16", "--on-overflow", "inf", "-q", "-f", "-o", "m.zt")
                    found, _ = make_safetensors.read(self.extracted("m.zt") / "model.safetensors")
                    self.check(found, numbers, "bf16", way)
                    self.good("extract", *source, "--dequantize", "bf16", "--on-overflow", "inf", "-q", "-f", "-o",
                              "x.safetensors")
                    found, _ = make_safetensors.read(self.folder / "x.safetensors")
                    self.check(found, numbers, "bf16", way)

    def test_the_type_that_the_configuration_names(self):
        """It is the one that the numbers have in the end."""
        model = self.write_model(*self.pair("ct_fp8"))
        for rules, want in ((["--dequantize", "f32", "--dtype", "bf16"], "bfloat16"), (["--dequantize", "f16", "--dtype", "f64"], "float64"),
                            (["--dequantize", "bf16", "--dtype", "norm=f32"], "bfloat16"), (["--dequantize", "f32"], "float32")):
            self.run_program("convert", model, *rules, "-q", "-f", "-o", "m.zt")
            self.assertEqual(json.loads((self.extracted("m.zt") / "config.json").read_text())["torch_dtype"], want)

    def test_parts_of_pipelines(self):
        """A part's configuration is in its folder: of a pipeline's folder, and of the .zt file of one."""
        config, add = quantized.gptq(numpy.random.default_rng(8))
        tensors = {}
        numbers = add(tensors, "blocks.0.up")
        pipeline = self.folder / "pipeline"
        part = self.write_model(tensors, config, name="pipeline/transformer")
        plain = self.write_model({"conv.weight": ("F32", [1], bytes(4))}, {}, name="pipeline/vae")
        (pipeline / "model_index.json").write_text('{"transformer": ["diffusers", "T"], "vae": ["diffusers", "V"]}')
        self.good("convert", pipeline, "-q", "-o", "whole.zt")
        for source in (pipeline, "whole.zt"):
            self.good("convert", source, "--dequantize", "bf16", "--on-overflow", "inf", "-q", "-f", "-o", "m.zt")
            out = self.extracted("m.zt")
            found, _ = make_safetensors.read(next((out / "transformer").glob("*.safetensors")))
            self.check(found, numbers, "bf16", source)
            self.assertEqual(json.loads((out / "transformer/config.json").read_text()),
                             {"architectures": ["M"], "torch_dtype": "bfloat16", "vocab_size": 7})
            self.assertEqual((out / "vae/config.json").read_bytes(), (plain / "config.json").read_bytes())
        (part / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "fp8"}}))
        done = self.run_program("convert", pipeline, "--dequantize", "bf16", "-f", "-o", "m.zt")
        self.assertEqual(done.returncode, INVALID, done.stderr)
        self.assertIn("transformer/config.json says 'fp8'", done.stderr.decode())

    def test_scales_of_a_cache_go(self):
        """Those of keys and values, with the quantization. Others of such names stay unless a cache is configured."""
        tensors, config = self.pair("ct_fp8")
        one, many = ("F32", [1], bytes(4)), ("F32", [8], bytes(32))
        tensors = {name.replace("a.", "l.self_attn.k_proj."): value for name, value in tensors.items()}
        tensors |= {"l.self_attn.k_scale": one, "l.self_attn.v_scale": one, "l.self_attn.attn.k_scale": one,
                    "l.self_attn.q_scale": many, "other.k_scale": one, "l.mlp.v_scale": many}
        for cache, stay in ((None, {"l.self_attn.q_scale", "other.k_scale", "l.mlp.v_scale"}), ({"num_bits": 8}, set())):
            model = self.write_model(tensors, config | {"kv_cache_scheme": cache})
            self.good("convert", model, "--dequantize", "bf16", "-q", "-f", "-o", "m.zt")
            found = set(support.read_zt(self.folder / "m.zt")["objects"])
            self.assertEqual({name for name in found if name.endswith("_scale")}, stay)

    def test_diff_of_numbers(self):
        """Codes on either side are compared as the numbers that they are."""
        config, add = quantized.ct_int(numpy.random.default_rng(3))
        tensors = {}
        numbers = add(tensors, "l.0.m") | add(tensors, "l.1.m")
        model = self.write_model(tensors, config)
        self.good("convert", model, "--dequantize", "bf16", "-q", "-o", "m.zt")
        for pair in ((model, "m.zt"), ("m.zt", model), (model, model)):
            done = self.run_program("diff", *pair, "--dequantize", "bf16")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        name = min(numbers)
        other = {key: value for key, value in tensors.items()}
        dtype, shape, data = other[name]
        other[name] = dtype, shape, bytes([data[0] ^ 1]) + data[1:]
        done = self.run_program("diff", "m.zt", self.write_model(other, config, name="other"), "--dequantize", "bf16")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"{name}", done.stdout.decode())
        self.assertIn("1 of ", done.stdout.decode())

    def test_what_goes_in_is_counted_as_stored(self):
        tensors, config = self.pair("ct_fp8")
        tensors = {"a.weight": ("F8_E4M3", [64, 64], bytes(4096)), "a.weight_scale": ("F32", [1], bytes(4))}
        model = self.write_model(tensors, config)
        plan = json.loads(self.good("convert", model, "--files", "none", "--dequantize", "bf16", "-n", "--json", "-o", "m.zt").stdout)
        self.assertEqual((plan["bytes_in"], plan["plan"][0]["components"][0]["bytes_out"]), (4100, 8192))

    def test_rules_beside_it(self):
        config, add = quantized.bnb_int8(numpy.random.default_rng(2))
        tensors = {"norm": ("F32", [2], b"\0\0\x80?\0\0\0\0")}
        numbers = add(tensors, "a") | add(tensors, "b")
        model = self.write_model(tensors, config)
        self.good("convert", model, "--dequantize", "bf16", "--dtype", "a.weight=f16", "--rename", "s/^b/c/", "--exclude",
                  "norm", "-q", "-o", "m.zt")
        found, _ = make_safetensors.read(self.extracted("m.zt") / "model.safetensors")
        self.assertEqual(set(found), {"a.weight", "c.weight"})
        self.check(found, {"a.weight": numbers["a.weight"]}, "f16", "")
        self.check(found, {"c.weight": numbers["b.weight"]}, "bf16", "")


class Refused(Base):
    def refuse(self, model, status, *words, rule=("--dequantize", "bf16")):
        done = self.run_program("convert", model, *rule, "-o", "m.zt", "-f")
        self.assertEqual(done.returncode, status, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr.decode())
        self.assertEqual(len(done.stderr.decode().strip().split("\n")), 1, done.stderr)
        self.assertFalse((self.folder / "m.zt").exists())

    def test_config_texts_that_are_refused(self):
        tensors, metadata = make_safetensors.read(DATA / "quantized" / "ct_int8_1.in.safetensors")
        quantization = json.dumps(json.loads(metadata["config"])["quantization_config"])
        model = self.write_model(tensors, {})
        for text, says in (('{"quantization_config": @, "quantization_config": @}', "member 'quantization_config' occurs twice"),
                           ('{"quantization_config": 1}', "quantization_config is not a JSON object"),
                           ('{"quantization_config": @, "a": Nan}', "it is not JSON"), ('{"a": %s1%s}' % ("[" * 2000, "]" * 2000), "it is not JSON")):
            (model / "config.json").write_text(text.replace("@", quantization))
            self.refuse(model, INVALID, says)

    def test_patterns_that_take_too_long(self):
        tensors = {}
        for i in range(400):
            tensors |= {f"{'a' * 240}.{i}.weight": ("F8_E4M3", [1, 1], b"8"), f"{'a' * 240}.{i}.weight_scale_inv": ("F32", [1, 1], bytes(4))}
        patterns = [f"*{'a' * 120}b{i}" for i in range(900)]
        model = self.write_model(tensors, {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": patterns})
        self.refuse(model, INVALID, "comparing the tensors with the patterns of config.json takes too long")
        self.write_model(dict(list(tensors.items())[:20]), {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": patterns})
        self.assertEqual(self.run_program("convert", model, "--dequantize", "bf16", "-o", "m.zt").returncode, DONE)

    def test_kinds_of_groups(self):
        """Each tensor is compared with all of them: equal ones are one, and there is a limit."""
        for name, says in (("ct_int8", "config_groups of config.json has more than 1000 kinds"), ("ct_pack4", "config_groups has 1001 kinds of weights")):
            tensors, config = self.pair(name)
            own, = config["config_groups"].values()
            for kinds in (1, 999, 1001):
                sizes = [1000 + i % kinds for i in range(3000)]
                groups = {f"g{i}": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": size}} for i, size in enumerate(sizes)}
                model = self.write_model(tensors, config | {"config_groups": groups | ({"own": own} if kinds < 1000 else {})})
                if kinds < 1000:
                    self.good("convert", model, "--dequantize", "bf16", "-q", "-f", "-o", "m.zt")
                    (self.folder / "m.zt").unlink()
                else:
                    self.refuse(model, INVALID, says)

    def test_what_contradicts_itself(self):
        weight = "model.layers.0.mlp.down_proj.weight"
        floats = numpy.zeros(6, "<f4").tobytes()
        huge = numpy.array([1 << 58, 64], "<i8").tobytes()
        cases = [
            ("deepseek_fp8", {weight + "_scale_inv": ("F32", [2, 3], floats)}, ["has shape [2, 3]", "needs [2, 2]"]),
            ("deepseek_fp8", {weight + "_scale_inv": None}, [weight, "no tensor beside it their scales", "'fp8'"]),
            ("deepseek_fp8", {weight + "_scale_inv": ("I32", [2, 2], floats[:16])}, ["is i32, not f32"]),
            ("deepseek_fp8", {weight: None}, [f"tensor '{weight}' is missing"]),
            ("deepseek_v4", {"layers.0.ffn.experts.0.w1.scale": ("F8_E8M0", [6, 3], bytes(18))}, ["needs [6, 2]"]),
            ("gptoss", {"model.layers.0.mlp.experts.gate_up_proj_scales": None}, ["_scales' is missing"]),
            ("gptoss", {"model.layers.0.mlp.experts.gate_up_proj_scales": ("U8", [2, 6, 1], bytes(12))}, ["needs [2, 6, 2]"]),
            ("ct_fp8", {"a.weight_scale": ("F32", [3], floats[:12])}, ["tensor 'a.weight_scale': it has shape [3]"]),
            ("ct_fp8", {"a.weight_scale": ("U8", [1], b"\x7f")}, ["'a.weight_scale': it is u8, not f32"]),
            ("ct_fp8", {"b.weight_scale": ("U8", [5, 1], bytes(5))}, ["'b.weight_scale': it is u8, not f32"]),
            ("deepseek_v4", {"layers.0.attn.wq_b.weight": None}, ["'layers.0.attn.wq_b.weight' is missing, whose scales these are"]),
            ("deepseek_v4", {"layers.0.attn.wq_b.weight": ("BF16", [6, 64], bytes(768))}, ["wq_b.weight': it is bf16, not f8_e4m3fn or i8"]),
            ("gptoss", {"model.layers.0.mlp.experts.gate_up_proj_blocks": ("I8", [2, 6, 2, 16], bytes(384))}, ["_blocks': it is i8, not u8"]),
            ("gptoss", {"model.layers.0.mlp.experts.gate_up_proj_blocks": None}, ["_blocks' is missing, to which this belongs"]),
            ("ct_int8", {"m.weight_scale": ("I64", [6, 1], bytes(48))}, ["is i64, not f32, bf16 or f16"]),
            ("ct_pack4", {"m.weight_shape": ("I64", [2], huge)}, ["'m.weight_shape' says [288230376151711744, 64]"]),
            ("ct_pack4", {"m.weight_scale": None}, ["'m.weight_scale' is missing"]),
            ("nvfp4", {"m.weight_global_scale": None}, ["m.weight_scale_2' is missing"]),
            ("gptq4", {"m.g_idx": ("I32", [64], numpy.full(64, 2, "<i4").tobytes())}, ["says group 2 of column 0, there are 2"]),
            ("gptq4", {"m.g_idx": ("I32", [64], numpy.full(64, -1, "<i4").tobytes())}, ["says group -1 of column 0"]),
            ("gptq4", {"m.qzeros": None}, ["'m.qzeros' is missing"]),
            ("gptq4", {"m.scales": ("F16", [3, 16], bytes(96))}, ["m.qzeros", "[3, 2]"]),
            ("awq", {"m.scales": ("F16", [2, 15], bytes(60))}, ["cannot hold 15 codes"]),
            ("bnb_int8", {"m.SCB": ("F32", [5], floats[:20])}, ["'m.SCB': it has shape [5]", "needs [6]"]),
            ("bnb_nf4", {"m.weight.absmax": ("F32", [4], floats[:16])}, ["needs [3]"]),
            ("bnb_nf4", {"m.weight.quant_map": None}, ["'m.weight.quant_map' is missing"]),
            ("bnb_nf4", {"m.weight.quant_state.bitsandbytes__nf4": ("U8", [70000], bytes(70000))}, ["has 70000 bytes"]),
            ("bnb_nf4", {"m.weight.quant_state.bitsandbytes__nf4": ("U8", [2], b"[]")}, ["not a JSON object"]),
        ]
        for text in ('{"blocksize": 64, "shape": [5, 288230376151711744]}', '{"blocksize": 0, "shape": [5, 26]}',
                     '{"blocksize": 64, "shape": [5, -26]}', '{"blocksize": 64}'):
            cases.append(("bnb_nf4", {"m.weight.quant_state.bitsandbytes__nf4": ("U8", [len(text)], text.encode())},
                          ["quant_state.bitsandbytes__nf4", "say"]))
        # What no scheme reads and what changes the numbers.
        order = ("I32", [64], numpy.arange(64, dtype="<i4").tobytes())
        for name, other, part in (("ct_int8", "m.weight_g_idx", order), ("ct_fp8", "a.weight_g_idx", order),
                                  ("nvfp4", "m.pre_quant_scale", ("BF16", [32], bytes(64))),
                                  ("nvfp4", "m.weight_scale_2", ("F32", [], bytes(4))),
                                  ("mxfp4_ct", "m.weight_global_scale", ("F32", [1], bytes(4)))):
            tensors, config = self.pair(name)
            with self.subTest(name=name, other=other):
                self.refuse(self.write_model(tensors | {other: part}, config), UNSUPPORTED, f"is not read with tensor '{other}'")
        # int8 of bitsandbytes that does not lie by rows.
        tensors, config = self.pair("bnb_int8")
        for number, name in ((1, "1 (col32)"), (2, "2 (col_turing)"), (3, "3 (col_ampere)"), (9, "9")):
            model = self.write_model(tensors | {"m.weight_format": ("U8", [], bytes([number]))}, config)
            self.refuse(model, UNSUPPORTED, f"'m.weight_format': it says format {name}, and only 0 (row) is read")
        # Integers with scales that are not e8m0 are no e2m1.
        tensors = {"m.weight": ("I8", [4, 32], bytes(128)), "m.scale": ("F32", [4, 2], bytes(32))}
        self.refuse(self.write_model(tensors, {"quant_method": "fp8"}), INVALID, "'m.scale': it is f32, not f8_e8m0")
        model = self.write_model(tensors, None)
        self.assertEqual(self.run_program("convert", model, "--dequantize", "bf16", "-q", "-o", "m.zt").returncode, 0)
        self.assertEqual(set(make_safetensors.read(self.extracted("m.zt") / "model.safetensors")[0]), set(tensors))
        (self.folder / "m.zt").unlink()
        # Half a model, and no configuration that would say so.
        tensors, _ = self.pair("deepseek_fp8")
        alone = ("F8_E4M3", [2, 2], bytes(4))
        model = self.write_model(tensors | {"b.weight": alone}, {})
        (model / "config.json").unlink()
        self.refuse(model, INVALID, "tensor 'b.weight'", "no tensor beside it their scales", f"'{weight}' has some")
        for name, changes, words in cases:
            tensors, config = self.pair(name)
            tensors = {key: value for key, value in (tensors | changes).items() if value is not None}
            with self.subTest(name=name, changes=list(changes)):
                self.refuse(self.write_model(tensors, config), INVALID, *words)

    def test_what_is_left_of_a_module(self):
        """Scales, zero points and the like whose codes, or scales, are missing."""
        for name, gone, left, needs in (
                ("gptq4", ["m.qweight"], "m.g_idx", "m.qweight"), ("gptq4", ["m.qweight", "m.g_idx"], "m.qzeros", "m.qweight"),
                ("gptq4", ["m.qweight", "m.qzeros", "m.g_idx"], "m.scales", "m.qweight"), ("awq", ["m.qweight"], "m.qzeros", "m.qweight"),
                ("ct_pack4", ["m.weight_packed", "m.weight_scale"], "m.weight_shape", "m.weight_packed"),
                ("ct_int8", ["m.weight", "m.weight_scale"], "m.weight_zero_point", "m.weight_scale"),
                ("bnb_nf4", ["m.weight", "m.weight.absmax"], "m.weight.quant_map", "m.weight.absmax")):
            tensors, config = self.pair(name)
            tensors |= {left: ("I8", [6, 1], bytes(6))} if left.endswith("zero_point") else {}
            other = {key.replace("m.", "other.", 1): value for key, value in tensors.items()}
            half = {key: value for key, value in tensors.items() if key not in gone}
            with self.subTest(name=name, left=left):
                self.refuse(self.write_model(other | half, config), INVALID, f"tensor '{left}': tensor '{needs}' is missing, to which this belongs")
                if needs in ("m.weight_scale", "m.weight.absmax"):
                    continue
                half[needs] = ("F64", [1], bytes(8))
                self.refuse(self.write_model(other | half, config), INVALID, f"tensor '{needs}': it is f64, not what tensor '{left}' belongs to")

    def test_what_comfyui_stores(self):
        """Under ModelOpt's names are codes and scales in other orders, and rotated ones: without a configuration only FP8 is read."""
        marker = lambda **state: ("U8", [len(json.dumps(state))], json.dumps(state).encode())  # noqa: E731
        one = ("F32", [], numpy.float32(2).tobytes())
        fp8 = {"a.weight": ("F8_E4M3", [1, 2], b"\x38\x40"), "a.weight_scale": one}
        nvfp4 = {"a.weight": ("U8", [128, 32], bytes(4096)), "a.weight_scale": ("F8_E4M3", [128, 4], bytes(512)), "a.weight_scale_2": one}
        int8 = {"a.weight": ("I8", [1, 256], bytes(256)), "a.weight_scale": ("F32", [1, 1], bytes(4))}
        mxfp8 = {"a.weight": ("F8_E4M3", [128, 128], bytes(128 * 128)), "a.weight_scale": ("U8", [128, 4], bytes(512))}
        for tensors, codes in ((nvfp4, "u8"), (int8, "i8"), (mxfp8, "f8_e4m3fn")):
            self.refuse(self.write_model(tensors, None), INVALID, f"codes of {codes} with such scales need a quantization configuration")
            self.refuse(self.write_model(tensors, {"bits": 8}), INVALID, f"codes of {codes} with such scales need a configuration that names their "
                        "method to be read, and config.json names none")
        groups = {"config_groups": {"a": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}}  # of compressed-tensors alone
        self.good("convert", self.write_model(int8, groups), "--dequantize", "f32", "-q", "-f", "-o", "m.zt")
        (self.folder / "m.zt").unlink()
        self.refuse(self.write_model(nvfp4 | {"a.comfy_quant": marker(format="nvfp4")}, {"quant_method": "modelopt"}), UNSUPPORTED,
                    "tensor 'a.comfy_quant': it says format 'nvfp4', and only 'float8_e4m3fn' of scaled FP8 is read")
        self.refuse(self.write_model(fp8 | {"a.comfy_quant": marker(format="mxfp8")}, None), UNSUPPORTED, "says format 'mxfp8'")
        model = self.write_model(fp8 | {"a.comfy_quant": marker(format="float8_e4m3fn", full_precision_matrix_mult=True)}, None)
        self.good("convert", model, "--dequantize", "f32", "-q", "-f", "-o", "m.zt")
        found, _ = make_safetensors.read(self.extracted("m.zt") / "model.safetensors")
        self.assertEqual(found, {"a.weight": ("F32", [1, 2], numpy.array([2, 4], "<f4").tobytes())})

    def test_schemes_that_are_not_read(self):
        """Is no warning where a configuration says that there is one; --dtype does not convert codes without their scales."""
        i8, f8, scale = ("I8", [2, 4], bytes(8)), ("F8_E4M3", [2, 4], bytes(8)), ("F32", [2, 1], bytes(8))
        for parts, config, says in (
                ({"weight": ("U32", [2, 4], bytes(32)), "scales": scale, "biases": scale}, {"group_size": 64, "bits": 4},
                 "config.json: its quantization names no method, and no tensor is stored in a form that is read"),
                ({"weight._data": i8, "weight._scale": scale}, {"quant_method": "quanto"}, "its quantization is 'quanto', and no tensor is stored so"),
                ({"W_q": ("U8", [2, 4], bytes(8)), "scale": scale, "zero": scale}, {"quant_method": "hqq"}, "'hqq', and no tensor is stored so")):
            self.refuse(self.write_model({f"m.{name}": part for name, part in parts.items()}, config), USAGE, says)
        for parts in ({"weight": f8, "scale_weight": scale}, {"weight": f8, "qscale_weight": scale}):
            model = self.write_model({f"m.{name}": part for name, part in parts.items()} | {"n": scale}, None)
            self.refuse(model, USAGE, "tensor 'm.weight': it holds codes of a quantized module, 'm', which --dtype would convert without their scales",
                        rule=("--dtype", "bf16"))
            self.good("convert", model, "--dtype", "n=bf16", "-q", "-f", "-o", "m.zt")
            (self.folder / "m.zt").unlink()
        tensors, config = self.pair("ct_fp8")
        rotated = {"transform_config": {"config_groups": {"R1": {"type": "hadamard"}}}}
        self.refuse(self.write_model(tensors, config | rotated), UNSUPPORTED, "config.json: transform_config rotates the weights, which is not read")
        self.good("convert", self.write_model(tensors, config | {"transform_config": {"config_groups": {}}}), "--dequantize", "bf16", "-q", "-o", "m.zt")

    def test_shapes_that_are_not_read(self):
        tensors, config = self.pair("ct_int8")
        wide = {"m.weight": ("I8", [2, 4, 8], bytes(64)), "m.weight_scale": ("F32", [2, 4, 1], bytes(32))}
        self.refuse(self.write_model(wide, config), UNSUPPORTED, "'m.weight': it has shape [2, 4, 8], and only codes of two dimensions are read")
        blocks = {"m.weight": ("F8_E4M3", [2, 4], bytes(8)), "m.weight_scale_inv": ("F32", [2], bytes(8))}
        self.refuse(self.write_model(blocks, {"quant_method": "fp8"}), UNSUPPORTED,
                    "'m.weight_scale_inv': it has shape [2], and only scales of as many dimensions as their codes are read")

    def test_kinds_with_blocks_and_without(self):
        rng = numpy.random.default_rng(2)
        codes, scales = rng.integers(0, 0x7e, (5, 6)).astype("u1"), rng.random((3, 2), "<f4")
        blocks = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [2, 3]}
        rows = {"num_bits": 8, "type": "float", "strategy": "channel"}
        tensors = {"a.weight": quantized.tensor("F8_E4M3", codes), "a.weight_scale": quantized.tensor("F32", scales),
                   "b.weight": quantized.tensor("F8_E4M3", codes), "b.weight_scale": ("F32", [5, 1], numpy.arange(5, dtype="<f4").tobytes())}
        config = {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": blocks}, "b": {"weights": rows}}}
        self.good("convert", self.write_model(tensors, config), "--dequantize", "f32", "-q", "-f", "-o", "m.zt")
        found, _ = make_safetensors.read(self.extracted("m.zt") / "model.safetensors")
        self.check(found, {"a.weight": quantized.E4M3[codes] * quantized.blocks(scales, [2, 3], codes.shape),
                           "b.weight": quantized.E4M3[codes] * numpy.arange(5, dtype="<f4")[:, None]}, "f32", "")
        (self.folder / "m.zt").unlink()
        config["config_groups"].pop("b")
        self.refuse(self.write_model(tensors, config), INVALID, "tensor 'b.weight_scale': it has shape [5, 1], config.json's size of blocks needs [3, 2]")

    def test_kinds_that_say_the_same(self):
        """A scale a row, and groups as long as a row."""
        tensors, config = self.pair("ct_pack4")
        shape = numpy.frombuffer(tensors["m.weight_shape"][2], "<i8")
        scales = ("F16", [int(shape[0]), 1], bytes(2 * int(shape[0])))
        tensors = {name: value for name, value in tensors.items() if "zero" not in name and "g_idx" not in name} | {"m.weight_scale": scales}
        kind = {"num_bits": 4, "type": "int", "symmetric": True}
        groups = {"a": {"weights": kind | {"strategy": "channel"}}, "b": {"weights": kind | {"strategy": "group", "group_size": int(shape[1])}}}
        self.good("convert", self.write_model(tensors, config | {"config_groups": groups}), "--dequantize", "f32", "-q", "-o", "m.zt")

    def test_blocks_as_the_configuration_has_them(self):
        """Scales that could be those of equal groups are those of the blocks that it names."""
        rng = numpy.random.default_rng(1)
        codes = rng.integers(0, 0x7e, (4, 300)).astype("u1")
        scales = rng.random((1, 3), "<f4")
        want = quantized.E4M3[codes] * quantized.blocks(scales, [128, 128], codes.shape)
        weights = {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}
        config = {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": weights}}}
        for rows in (1, 4):
            model = self.write_model({"a.weight": ("F8_E4M3", [rows, 300], codes[:rows].tobytes()),
                                      "a.weight_scale": ("F32", [1, 3], scales.tobytes())}, config)
            self.good("convert", model, "--dequantize", "f32", "-q", "-f", "-o", "m.zt")
            back, _ = make_safetensors.read(self.extracted("m.zt") / "model.safetensors")
            self.assertEqual(back["a.weight"][2], want[:rows].astype("<f4").tobytes())

    def test_what_contradicts_the_configuration(self):
        blocks = {"quant_method": "fp8", "weight_block_size": [64, 128]}
        weights = {"num_bits": 8, "type": "float", "strategy": "channel"}
        for name, config, words in [
                ("deepseek_fp8", {"quant_method": "gptq", "bits": 4}, ["stored as fp8 blocks", "_scale_inv'", "config.json says 'gptq'"]),
                ("deepseek_fp8", blocks, ["config.json says blocks of 64x128", "needs [3, 2]"]),
                ("deepseek_fp8", {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.mlp"]},
                 ["config.json says that its module is not quantized"]),
                ("ct_int8", {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": weights}}},
                 ["its shapes say int of 8 bits", "config.json says float of 8 bits"]),
                ("gptq4", {"quant_method": "gptq", "bits": 8, "group_size": 32}, ["the shapes say 4 bits, the configuration 8"]),
                ("gptq4", {"quant_method": "gptq", "bits": 4, "group_size": 16}, ["the configured group size 16"]),
                ("gptq4", {"quant_method": "gptq", "bits": 4, "group_size": 0}, ["the configured group size 0"]),
                ("gptq4", {"quant_method": "gptq", "bits": 4, "group_size": 1 << 63}, ["gives no group size"]),
                ("gptq4", {"quant_method": "gptq", "bits": 3, "group_size": 32}, ["the shapes say 4 bits, the configuration 3"]),
                ("gptq4", {"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": 2},
                 ["config.json: checkpoint_format is not a string"]),
                ("ct_pack4", {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["m"]},
                 ["'m.weight_packed' holds its codes"]),
                ("deepseek_fp8", {"quant_method": ["fp8"]}, ["config.json: quant_method is not a string"]),
                ("deepseek_fp8", {"quant_method": "fp8", "weight_block_size": [1 << 40, 1 << 40]}, ["1099511627776x1099511627776", "needs [1, 1]"]),
                *(("deepseek_fp8", {"quant_method": "fp8", "weight_block_size": block}, ["weight_block_size is not two positive integers"])
                  for block in ([0, 128], [-128, 128], [128], ["128", "128"], 128)),
                ("gptq4", {"quant_method": "fp8"}, ["m.qweight", "config.json says 'fp8'"]),
                ("gptq4", None, ["need a quantization configuration"]),
                ("bnb_nf4", {"quant_method": "bitsandbytes", "load_in_4bit": False}, ["config.json says 'load_in_4bit': false"]),
                ("nvfp4", {"quant_method": "modelopt"}, ["stored as nvfp4", "config.json says 'modelopt'"])]:
            tensors, _ = self.pair(name)
            with self.subTest(name=name, config=config):
                self.refuse(self.write_model(tensors, config), INVALID, *words)

    def test_nothing_silent(self):
        """--dequantize that applies to nothing though a quantization is configured; --dtype on codes or on scales."""
        tensors, config = self.pair("deepseek_fp8")
        norm = {"model.norm.weight": tensors["model.norm.weight"]}
        self.refuse(self.write_model(norm, config), USAGE, "its quantization is 'fp8', and no tensor is stored so")
        model = self.write_model(tensors, config)
        for rule in ("bf16", "glob:*scale_inv=f16", "down_proj.weight=f32"):
            self.refuse(model, USAGE, "part of a quantized tensor, 'model.layers.0.mlp.down_proj.weight' (fp8 blocks, 8 bits",
                        "--dequantize bf16", rule=("--dtype", rule))
        self.good("convert", model, "--dtype", "norm=f32", "-q", "-o", "m.zt")
        done = self.run_program("extract", "m.zt", "--dtype", "bf16", "-o", "x.safetensors")
        self.assertEqual(done.returncode, USAGE, done.stderr)
        (self.folder / "m.zt").unlink()
        self.refuse(self.write_model(*self.pair("gptq4")), USAGE, "part of a quantized tensor", rule=("--dtype", "bf16"))
        # The configuration beside a file tells, as it does --dequantize.
        one = self.write_model(*self.pair("ct_int8")) / "model.safetensors"
        self.refuse(one, USAGE, "it is part of a quantized tensor, 'm.weight' (int8, 8 bits", rule=("--dtype", "f16"))
        self.refuse(self.write_model(self.pair("gptq4")[0], None), USAGE, "tensor 'm.scales'", "need a quantization configuration",
                    rule=("--dtype", "bf16"))
        plain = self.write_model({"a": ("F8_E4M3", [2], b"\x38\x40")}, None)  # codes without scales are numbers
        self.good("convert", plain, "--dtype", "bf16", "-q", "-f", "-o", "m.zt")

    def test_configurations_that_disagree(self):
        """Two files of a folder, or of a .zt file made of it, and two parts of config.json."""
        tensors, config = self.pair("gptq4")
        model = self.write_model(tensors, config)
        other = model / "quantize_config.json"
        for change, words in (({"checkpoint_format": "gptq_v2"}, "says checkpoint_format 'gptq_v2', and config.json 'gptq'"),
                              ({"bits": 8}, "says bits '8', and config.json '4'"), ({"group_size": 64}, "says group_size '64'"),
                              ({"quant_method": "awq"}, "says the method 'awq', and config.json 'gptq'")):
            other.write_text(json.dumps(config | change))
            self.refuse(model, INVALID, "quantize_config.json", words)
            self.refuse(model, INVALID, words, rule=("--quant", "group"))
            self.run_program("convert", model, "-q", "-o", "whole.zt", "-f")
            self.refuse("whole.zt", INVALID, words)
        other.write_text(json.dumps({"bits": config["bits"], "group_size": config["group_size"], "desc_act": True}))
        self.good("convert", model, "--dequantize", "bf16", "-q", "-f", "-o", "m.zt")
        (self.folder / "m.zt").unlink()
        parts = {"text_config": {"quantization_config": config}, "vision_config": {"quantization_config": {"quant_method": "fp8"}}}
        (model / "config.json").write_text(json.dumps(parts))
        self.refuse(model, INVALID, "text_config and vision_config have different quantizations")

    def test_modules_left_alone(self):
        """By name, part of a name, globs and regular expressions: codes that lie there need no scales, and have none."""
        tensors, config = self.pair("ct_fp8")
        alone = ("F8_E4M3", [2, 2], bytes(4))
        names = "model.layers.10.mlp.gate.weight", "visual.a.weight"
        for entries, matches in ((["mlp.gate", "visual"], True), (["model.layers.*", "visual*"], True), (["*.gate", "?isual.a"], True),
                                 (["re:.*mlp\\.gate$", "re:^visual.*"], True), (["re:model.layers.\\d+.mlp.gate", "re:vis"], True),
                                 (["re:.*mlp.ga$", "visual"], False), (["layers.1", "mlp.gat", "visual"], False),
                                 (["re:model.layers.[0-9]+$", "visual"], False), (["re:.*(gate|up)", "visual"], False)):
            model = self.write_model(tensors | dict.fromkeys(names, alone), config | {"ignore": entries})
            with self.subTest(entries=entries):
                if matches:
                    self.good("convert", model, "--dequantize", "bf16", "-q", "-f", "-o", "m.zt")
                    (self.folder / "m.zt").unlink()
                else:
                    self.refuse(model, INVALID, f"tensor '{names[0]}'", "does not name its module")
        self.refuse(self.write_model(tensors, config | {"ignore": ["re:a$"]}), INVALID, "says that its module is not quantized")

    def test_a_configuration_that_is_a_link(self):
        model = self.write_model(*self.pair("gptq4"))
        (model / "config.json").rename(self.folder / "config.json")
        (model / "config.json").symlink_to("../config.json")
        for rule in (("--dequantize", "bf16"), ("--quant", "group")):
            self.refuse(model, INVALID, "config.json: it is a symbolic link that leaves the folder", rule=rule)
        self.good("convert", model, "--dequantize", "bf16", "--follow-links", "-q", "-o", "m.zt")

    def test_numbers_that_do_not_fit(self):
        tensors, config = self.pair("ct_fp8")
        tensors["a.weight_scale"] = "F32", [1], numpy.float32(1e30).tobytes()
        model = self.write_model(tensors, config)
        done = self.run_program("convert", model, "--dequantize", "f16", "-o", "m.zt")
        self.assertEqual(done.returncode, support.NUMERIC, done.stderr)
        self.assertIn("do not fit f16", done.stderr.decode())
        # Beyond f32, with scales that are finite; those that are not make no such number.
        tensors = {"a.weight": ("F8_E4M3", [1, 4], bytes([0x7e, 0xfe, 0x38, 0x7f])), "a.weight_scale": ("F32", [1], bytes(4))}
        most = numpy.finfo("<f4").max
        for scale, want in ((1e38, [numpy.inf, -numpy.inf, numpy.float32(1e38), numpy.nan]),
                            (numpy.inf, [numpy.inf, -numpy.inf, numpy.inf, numpy.nan])):
            tensors["a.weight_scale"] = "F32", [1], numpy.float32(scale).tobytes()
            model = self.write_model(tensors, config)
            for kind in TYPES:
                done = self.run_program("convert", model, "--dequantize", kind, "-f", "-o", "m.zt")
                if scale == 1e38 or kind != "f16":
                    self.assertEqual(done.returncode, support.NUMERIC if scale == 1e38 else 0, done.stderr)
                if scale == 1e38:
                    self.assertIn("tensor 'a.weight': the product of a code and its scale does not fit f32", done.stderr.decode())
            for rule in ("inf", "saturate"):
                self.good("convert", model, "--dequantize", "f32", "--on-overflow", rule, "-q", "-f", "-o", "m.zt")
                found = numpy.frombuffer(make_safetensors.read(self.extracted("m.zt") / "model.safetensors")[0]["a.weight"][2], "<f4")
                expected = numpy.clip(want, -most, most) if rule == "saturate" and scale == 1e38 else want
                numpy.testing.assert_array_equal(found, numpy.array(expected, "<f4"))
                # Of a narrower type they are counted with those that do not fit it alone.
                for kind, count in (("f32", 2), ("f16", 3), ("bf16", 2)) if scale == 1e38 else (("f32", 0), ("bf16", 0)):
                    became = "infinity" if rule == "inf" else "the nearest value of its type"
                    for out in (["-o", "m.zt"], ["-o", "m.zt", "--canonical"], ["--to", "safetensors", "-o", "folder/"]):
                        shutil.rmtree(self.folder / "folder", ignore_errors=True)
                        done = self.run_program("convert", model, "--dequantize", kind, "--on-overflow", rule, "-f", *out)
                        self.assertEqual(done.returncode, 0, done.stderr)
                        said = f"tensor 'a.weight': {count} values did not fit and became {became}" if count else ""
                        self.assertEqual([line for line in done.stderr.decode().splitlines() if "did not fit" in line],
                                         [f"ztstream: warning: {said}"] if count else [], done.stderr)

    def test_products_beyond_f32_of_what_a_file_defines(self):
        """Tables of values, nested scales and global ones are finite, their products are not; of a code of 0, too."""
        f32 = lambda *values: numpy.array(values, "<f4").tobytes()  # noqa: E731
        table, config = self.pair("bnb_nf4")
        table = dict(table, **{"m.weight.quant_map": ("F32", [16], f32(*[1e6] * 16)), "m.weight.absmax": ("F32", [3], f32(*[6e35] * 3))})
        nested = dict(self.pair("bnb_nf4")[0])
        state = "m.weight.quant_state.bitsandbytes__nf4"
        text = json.dumps(json.loads(nested[state][2]) | {"nested_blocksize": 256, "nested_offset": 0.1}).encode()
        nested |= {state: ("U8", [len(text)], text), "m.weight.absmax": ("U8", [3], bytes([0, 1, 255])), "m.weight.nested_absmax": ("F32", [1], f32(3e38)),
                   "m.weight.nested_quant_map": ("F32", [256], f32(*numpy.linspace(-2, 2, 256)))}
        zeros, of_groups = self.pair("nvfp4")
        for name, (dtype, shape, data) in list(zeros.items()):
            if name.endswith("weight_global_scale"):
                zeros[name] = dtype, shape, f32(1e-40)
            elif name.endswith(("weight_packed", ".weight")):
                zeros[name] = dtype, shape, bytes(len(data))
        for case, tensors, of in (("table", table, config), ("nested", nested, config), ("zero codes", zeros, of_groups)):
            model = self.write_model(tensors, of)
            for kind in ("f32", "bf16"):
                with self.subTest(case=case, kind=kind):
                    self.expect(support.NUMERIC, "convert", model, "--dequantize", kind, "-f", "-o", "m.zt")
                    for rule in ("inf", "saturate"):
                        report = self.json("convert", model, "--dequantize", kind, "--on-overflow", rule, "-f", "-o", "m.zt", "--json")
                        found = make_safetensors.read(self.extracted("m.zt") / "model.safetensors")[0]["m.weight"][2]
                        found = numpy.frombuffer(found, "<f4") if kind == "f32" else (numpy.frombuffer(found, "<u2").astype("<u4") << 16).view("<f4")
                        beyond = int(numpy.count_nonzero(~numpy.isfinite(found)))
                        if rule == "inf":
                            made = beyond
                        self.assertGreater(made, 0)
                        self.assertEqual([each["overflow"] for each in report["numeric"]], [made])
                        self.assertTrue(rule == "inf" or kind == "bf16" or beyond == 0)
        table["m.weight.quant_map"] = "F32", [16], f32(*[numpy.inf] * 16)
        done = self.expect(support.INVALID, "convert", self.write_model(table, config), "--dequantize", "f32", "-f", "-o", "m.zt")
        self.assertIn("tensor 'm.weight.quant_map': it has a value that is not finite", done.stderr.decode())

    def test_a_pipe(self):
        model = self.write_model(*self.pair("deepseek_fp8"))
        done = self.run_program("convert", "-", "--dequantize", "bf16", "-o", "m.zt",
                                stdin=(model / "model.safetensors").read_bytes())
        self.assertEqual(done.returncode, support.UNSUPPORTED, done.stderr)
        self.assertIn("a pipe can only be read in order", done.stderr.decode())
