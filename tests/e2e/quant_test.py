"""--quant group: GPTQ, AWQ and compressed-tensors modules become one object each, exactly; the rest stays."""
import hashlib
import json
import shutil

import numpy

import make_safetensors
import onnx_assembler as assembler
import support
from support import DATA, DONE, INVALID, USAGE, read_zt

DTYPES = {"f16": numpy.float16, "f32": numpy.float32, "i32": numpy.int32, "i64": numpy.int64}
NAMES = {numpy.dtype(numpy.float16): "F16", numpy.dtype(numpy.float32): "F32",
         numpy.dtype(numpy.int32): "I32", numpy.dtype(numpy.int64): "I64"}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def pack(codes, bits, axis):
    """Codes of a 2-D array, 32 // bits to an int32 along `axis`, the first in the low bits; padded with 0."""
    codes = numpy.moveaxis(numpy.asarray(codes, numpy.uint64), axis, -1)
    each = 32 // bits
    codes = numpy.pad(codes, [(0, 0), (0, -codes.shape[-1] % each)])
    words = codes.reshape(codes.shape[0], -1, each) << (numpy.arange(each, dtype=numpy.uint64) * numpy.uint64(bits))
    return numpy.moveaxis(words.sum(-1).astype(numpy.uint32).view(numpy.int32), -1, axis).copy()


def unpack(words, bits, axis, count=None):
    words = numpy.moveaxis(words.view(numpy.uint32), axis, -1)
    shifts = numpy.arange(0, 32, bits, dtype=numpy.uint32)
    codes = (words[..., None] >> shifts) & numpy.uint32((1 << bits) - 1)
    codes = codes.reshape(words.shape[0], -1)[:, :count]
    return numpy.moveaxis(codes, -1, axis).astype(numpy.int32)


def component(group, role):
    """A component as the array its entry of source_tensors says."""
    entry = group["attributes"]["source_tensors"][role]
    part = group["components"][role]
    assert part["dtype"] == entry["dtype"], (role, part["dtype"], entry)
    return numpy.frombuffer(part["bytes"], DTYPES[entry["dtype"]]).reshape(entry["shape"])


def dequantize(group):
    """(code - zero) * scale in float32, from the object's components and attributes alone."""
    attributes = group["attributes"]
    bits, size = attributes["bits"], attributes["group_size"]
    packed, scales = component(group, "packed_weight"), component(group, "scales").astype(numpy.float32)
    packing = attributes["packing"]
    if packing == "compressed_tensors_i32_lsb_cols":
        out, inputs = group["shape"]
        codes = unpack(packed, bits, 1, inputs).T
        scales = scales.T
        if "zeros" in group["components"]:
            assert attributes["zeros_packing"] == "compressed_tensors_i32_lsb_rows"
            zeros = unpack(component(group, "zeros"), bits, 0)[:out].T + attributes["zero_offset"]
        else:
            zeros = numpy.full_like(scales, attributes["zero_point"], dtype=numpy.int32)
    else:
        inputs, out = group["shape"]
        zeros = component(group, "zeros")
        if packing == "gptq_i32_lsb_rows":
            assert attributes["zeros_packing"] == "i32_lsb_cols"
            codes, zeros = unpack(packed, bits, 0), unpack(zeros, bits, 1)
        else:
            assert packing == attributes["zeros_packing"] == "awq_gemm_i32_0246_1357"
            place = numpy.argsort(AWQ_ORDER)
            codes = unpack(packed, bits, 1).reshape(inputs, -1, 8)[..., place].reshape(inputs, -1)
            zeros = unpack(zeros, bits, 1).reshape(zeros.shape[0], -1, 8)[..., place].reshape(zeros.shape[0], -1)
        zeros = zeros + attributes["zero_offset"]
    which = component(group, "g_idx") if "g_idx" in group["components"] else numpy.arange(inputs) // size
    return (codes - zeros[which]).astype(numpy.float32) * scales[which]


def tensors_of(arrays):
    """{name: (dtype, shape, bytes)} for make_safetensors, of {name: numpy array}."""
    return {name: (NAMES[array.dtype], array.shape, array.tobytes()) for name, array in arrays.items()}


def gptq_arrays(module, bits=4, inputs=64, out=32, size=32, seed=1, g_idx=True):
    random = numpy.random.default_rng(seed)
    groups = -(-inputs // size)
    arrays = {
        module + ".qweight": pack(random.integers(0, 1 << bits, (inputs, out)), bits, 0),
        module + ".qzeros": pack(random.integers(0, 1 << bits, (groups, out)), bits, 1),
        module + ".scales": random.random((groups, out)).astype(numpy.float16),
        module + ".bias": random.random(out).astype(numpy.float16),
    }
    if g_idx:
        arrays[module + ".g_idx"] = (numpy.arange(inputs) // size).astype(numpy.int32)
    return arrays


def packed_arrays(module, bits=4, out=24, inputs=60, size=16, symmetric=True, seed=2):
    """A compressed-tensors module and the weight it stands for, [in, out]."""
    random = numpy.random.default_rng(seed)
    groups = -(-inputs // size)
    codes = random.integers(0, 1 << bits, (out, inputs))
    scales = random.random((out, groups)).astype(numpy.float16)
    zeros = random.integers(0, 1 << bits, (out, groups))
    arrays = {
        module + ".weight_packed": pack(codes, bits, 1), module + ".weight_scale": scales,
        module + ".weight_shape": numpy.array([out, inputs], numpy.int64),
    }
    if symmetric:
        zeros[:] = 1 << (bits - 1)
    else:
        arrays[module + ".weight_zero_point"] = pack(zeros, bits, 0)
    which = numpy.arange(inputs) // size
    weight = (codes - zeros[:, which]).astype(numpy.float32) * scales.astype(numpy.float32)[:, which]
    return arrays, weight.T


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}


def packed_config(bits=4, size=16, symmetric=True):
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                "num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group", "group_size": size}}}}


class Grouping(support.EndToEnd):

    def checkpoint(self, arrays, config, folder="model", files=1):
        """A folder of safetensors files, the tensors dealt out to them in turn, and its config.json."""
        tensors = tensors_of(arrays)
        names = [f"model-{i + 1:05}-of-{files:05}.safetensors" for i in range(files)]
        for i, name in enumerate(names):
            part = {key: tensors[key] for key in list(tensors)[i::files]}
            self.safetensors(f"{folder}/{name}", part, {"format": "pt"})
        if files > 1:
            index = {"weight_map": {key: names[i % files] for i, key in enumerate(tensors)}}
            self.put(f"{folder}/model.safetensors.index.json", json.dumps(index).encode())
        if config is not None:
            self.put(f"{folder}/config.json", json.dumps({"quantization_config": config}).encode())
        return self.path(folder)

    def convert(self, *arguments):
        """Runs convert --quant group; returns what was written and the warnings."""
        output = self.path("out.zt")
        process = self.expect(DONE, "convert", *arguments, "--quant", "group", "-f", "-o", output)
        warnings = [line for line in process.stderr.decode().splitlines() if "warning:" in line]
        return read_zt(output), warnings

    def check_kept(self, content, arrays):
        """Every tensor is there with its bytes: as itself or as the component that says it was this tensor."""
        found = {}
        for name, thing in content["objects"].items():
            if thing["format"] == "dense":
                data = thing["components"]["data"]
                found[name] = (data["dtype"], list(thing["shape"]), data["bytes"])
            else:
                for role, entry in thing["attributes"]["source_tensors"].items():
                    part = thing["components"][role]
                    found[entry["name"]] = (entry["dtype"], entry["shape"], part["bytes"])
        wanted = {name: (NAMES[array.dtype].lower(), list(array.shape), array.tobytes())
                  for name, array in arrays.items()}
        self.assertEqual(found, wanted)

    def check_dense(self, arrays, config, *says, **options):
        """Nothing is grouped, and one warning says why."""
        content, warnings = self.convert(self.checkpoint(arrays, config, **options))
        self.assertEqual({thing["format"] for thing in content["objects"].values()}, {"dense"})
        self.check_kept(content, arrays)
        self.assertNotIn("quantization_config", content["attributes"])
        self.assertEqual(len(warnings), 1, warnings)
        for text in says:
            self.assertIn(text, warnings[0])

    def test_fixtures_dequantize_to_the_expected_values(self):
        for scheme in "gptq", "awq":
            with self.subTest(scheme):
                expected = json.loads((DATA / scheme / "expected.json").read_text())
                config = json.loads((DATA / scheme / "config.json").read_text())["quantization_config"]
                content, warnings = self.convert(DATA / scheme / "model.safetensors")
                self.assertEqual(warnings, [])
                self.assertEqual(set(content["objects"]), {"model.layers.0.q_proj", "model.norm.weight"})
                self.assertEqual(content["attributes"]["quantization_config"],
                                 {"file": "config.json", "content": config})
                module = expected.pop("model.layers.0.q_proj")
                group = content["objects"]["model.layers.0.q_proj"]
                self.assertEqual(group["format"], "quantized_group")
                self.assertEqual(list(group["shape"]), module["logical_shape"])
                self.assertEqual(hashlib.sha256(dequantize(group).tobytes()).hexdigest(),
                                 module["dequantized_f32_sha256"])
                for role, entry in group["attributes"]["source_tensors"].items():
                    want = expected.pop(entry["name"])
                    part = group["components"][role]
                    self.assertEqual((entry["dtype"], entry["shape"]), (want["dtype"], want["shape"]))
                    self.assertEqual(hashlib.sha256(part["bytes"]).hexdigest(), want["sha256"])
                self.assertEqual(list(expected), ["model.norm.weight"])
                self.succeed("verify", self.path("out.zt"))

    def test_attributes(self):
        content, _ = self.convert(DATA / "gptq")
        attributes = content["objects"]["model.layers.0.q_proj"]["attributes"]
        del attributes["source_tensors"]
        self.assertEqual(attributes, {
            "quant_method": "gptq", "bits": 4, "group_size": 32, "packing": "gptq_i32_lsb_rows",
            "zeros_packing": "i32_lsb_cols", "zero_offset": 1})
        content, _ = self.convert(DATA / "awq")
        attributes = content["objects"]["model.layers.0.q_proj"]["attributes"]
        del attributes["source_tensors"]
        self.assertEqual(attributes, {
            "quant_method": "awq", "bits": 4, "group_size": 32, "packing": "awq_gemm_i32_0246_1357",
            "zeros_packing": "awq_gemm_i32_0246_1357", "zero_offset": 0, "version": "gemm"})

    def test_keep_is_the_default(self):
        self.succeed("convert", DATA / "gptq", "-o", "keep.zt", "-q")
        content = read_zt(self.path("keep.zt"))
        self.assertEqual({thing["format"] for thing in content["objects"].values()}, {"dense"})
        self.succeed("convert", DATA / "gptq", "--quant", "keep", "-o", "same.zt", "-q")
        self.assertEqual(self.path("keep.zt").read_bytes(), self.path("same.zt").read_bytes())
        self.fail_with(USAGE, "convert", DATA / "gptq", "--quant", "yes", "-o", "x.zt", says="--quant")

    def test_no_module_is_quantized(self):
        (line,) = self.convert(self.safetensors("plain.safetensors"))[1]
        self.assertIn("--quant group applies to no tensor", line)

    def test_no_module_is_quantized_and_the_source_warns_of_something_else(self):
        text = assembler.node("Constant", "s", assembler.attribute("value_strings", 8, assembler.field(9, "x")))
        weights = assembler.tensor("w", 1, (2,), assembler.field(9, bytes(8)))
        lines = self.convert(self.put("m.onnx", assembler.whole(assembler.graph(text, tensors=[weights]))))[1]
        self.assertGreater(len(lines), 1)
        self.assertEqual(len([line for line in lines if "--quant group applies to no tensor" in line]), 1, lines)

    def test_every_width_of_gptq_and_its_labels(self):
        for bits in 2, 4, 8:
            for label, offset in (None, 1), ("gptq", 1), ("gptq_v2", 0):
                with self.subTest(bits=bits, label=label):
                    config = dict(GPTQ, bits=bits)
                    if label:
                        config["checkpoint_format"] = label
                    arrays = gptq_arrays("a.b", bits, g_idx=bits != 2)
                    content, warnings = self.convert(self.checkpoint(arrays, config))
                    self.assertEqual(warnings, [])
                    self.check_kept(content, arrays)
                    group = content["objects"]["a.b"]
                    self.assertEqual(group["attributes"]["zero_offset"], offset)
                    self.assertEqual(group["attributes"].get("checkpoint_format"), label)
                    codes = unpack(arrays["a.b.qweight"], bits, 0)
                    zeros = unpack(arrays["a.b.qzeros"], bits, 1) + offset
                    which = numpy.arange(64) // 32
                    want = (codes - zeros[which]).astype(numpy.float32) * arrays["a.b.scales"][which].astype(numpy.float32)
                    numpy.testing.assert_array_equal(dequantize(group), want)
                    self.assertEqual(content["objects"]["a.b.bias"]["format"], "dense")

    def test_one_group_a_column(self):
        content, warnings = self.convert(self.checkpoint(gptq_arrays("m", size=64), dict(GPTQ, group_size=-1)))
        self.assertEqual(warnings, [])
        self.assertEqual(content["objects"]["m"]["attributes"]["group_size"], 64)

    def test_three_bits_are_grouped_under_an_opaque_packing(self):
        random = numpy.random.default_rng(3)
        words = lambda *shape: random.integers(-2**31, 2**31, shape).astype(numpy.int32)
        arrays = {"m.qweight": words(6, 32), "m.qzeros": words(2, 3),
                  "m.scales": random.random((2, 32)).astype(numpy.float16)}
        content, warnings = self.convert(self.checkpoint(arrays, dict(GPTQ, bits=3)))
        self.assertEqual(warnings, [])
        self.check_kept(content, arrays)
        group = content["objects"]["m"]
        self.assertEqual(list(group["shape"]), [64, 32])
        self.assertEqual(group["attributes"]["packing"], "gptq_i32_3bit_rows")

    def test_compressed_tensors(self):
        for bits in 2, 4, 8:
            for symmetric in True, False:
                with self.subTest(bits=bits, symmetric=symmetric):
                    arrays, weight = packed_arrays("a.b", bits, symmetric=symmetric)
                    config = packed_config(bits, symmetric=symmetric)
                    content, warnings = self.convert(self.checkpoint(arrays, config))
                    self.assertEqual(warnings, [])
                    self.check_kept(content, arrays)
                    group = content["objects"]["a.b"]
                    self.assertEqual(list(group["shape"]), [24, 60])
                    self.assertEqual("zeros" in group["components"], not symmetric)
                    numpy.testing.assert_array_equal(dequantize(group), weight)

    def test_version_1_1_requires_zeros(self):
        arrays, _ = packed_arrays("a.b")
        model = self.checkpoint(arrays, packed_config())
        self.fail_with(USAGE, "convert", model, "--quant", "group", "--spec", "1.1", "-q", "-o", "x.zt",
                       says=("tensor 'a.b'", "1.1.0", "zeros"))
        self.assertFalse(self.path("x.zt").exists())
        content, _ = self.convert(DATA / "gptq", "--spec", "1.1")
        self.assertEqual(content["objects"]["model.layers.0.q_proj"]["format"], "quantized_group")
        self.fail_with(USAGE, "convert", DATA / "gptq", "--quant", "group", "--spec", "0.1", "-q", "-o", "x.zt")

    def test_companions_in_other_shards(self):
        arrays = {**gptq_arrays("model.layers.0.q_proj"), **gptq_arrays("model.layers.1.q_proj", seed=7)}
        content, warnings = self.convert(self.checkpoint(arrays, GPTQ, files=3), "--zstd")
        self.assertEqual(warnings, [])
        self.check_kept(content, arrays)
        self.assertEqual(sum(thing["format"] == "quantized_group" for thing in content["objects"].values()), 2)

    def test_threads_give_the_same_bytes(self):
        arrays = {name: array for i in range(20) for name, array in gptq_arrays(f"layers.{i}", seed=i).items()}
        model = self.checkpoint(arrays, GPTQ, files=3)
        outputs = set()
        for threads in 1, 2, 3, 8:
            self.succeed("convert", model, "--quant", "group", "-q", "-f", "--zstd", "-T", threads, "-o", "t.zt")
            outputs.add(self.path("t.zt").read_bytes())
        self.assertEqual(len(outputs), 1)

    def test_missing_companion(self):
        for suffix in "scales", "qzeros":
            arrays = gptq_arrays("a.b")
            del arrays[f"a.b.{suffix}"]
            self.check_dense(arrays, GPTQ, "module 'a.b'", f"tensor 'a.b.{suffix}' is missing")
        arrays = gptq_arrays("a.b", g_idx=False)
        self.check_dense(arrays, dict(GPTQ, desc_act=True), "module 'a.b'", "'a.b.g_idx' is missing")

    def test_shapes_that_do_not_fit(self):
        arrays = gptq_arrays("a.b")
        arrays["a.b.scales"] = arrays["a.b.scales"][:, :-8].copy()
        self.check_dense(arrays, GPTQ, "module 'a.b'", "'a.b.scales' has shape [2, 24]", "[2, 32]")
        arrays = gptq_arrays("a.b")
        arrays["a.b.g_idx"] = arrays["a.b.g_idx"][:-1].copy()
        self.check_dense(arrays, GPTQ, "'a.b.g_idx' has shape [63]", "[64]")
        arrays = gptq_arrays("a.b")
        arrays["a.b.qzeros"] = arrays["a.b.qzeros"].view(numpy.uint32).astype(numpy.float32)
        self.check_dense(arrays, GPTQ, "'a.b.qzeros' is f32, not i32")
        arrays, _ = packed_arrays("a.b")
        arrays["a.b.weight_shape"] = numpy.array([24, 70], numpy.int64)
        self.check_dense(arrays, packed_config(), "module 'a.b'", "config_groups")
        arrays["a.b.weight_shape"] = numpy.array([-24, -1], numpy.int64)
        self.check_dense(arrays, packed_config(), "module 'a.b'", "'a.b.weight_shape' says")
        awq = {name: array for name, array in gptq_arrays("a.b").items() if not name.endswith("g_idx")}
        self.check_dense(awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"},
                         "module 'a.b'", "'a.b.qzeros' has shape [2, 4]", "[2, 32]")

    def test_configuration_that_says_otherwise(self):
        self.check_dense(gptq_arrays("a.b"), dict(GPTQ, bits=8), "module 'a.b'", "4 bits", "the configuration 8")
        self.check_dense(gptq_arrays("a.b"), dict(GPTQ, group_size=16), "2 groups", "group size 16 makes 4")
        self.check_dense(gptq_arrays("a.b"), {"quant_method": "gptq", "group_size": 32}, "no bits")
        own = {"dynamic": {"+:.*b": {"bits": 4}, "-:lm_head": {}}}  # GPTQModel's
        self.check_dense(gptq_arrays("a.b"), dict(GPTQ, bits=8, **own), "the configuration 8", "\"dynamic\"", "quantize all alike")
        self.check_dense(gptq_arrays("a.b"), dict(GPTQ, group_size=16, **own), "group size 16 makes 4", "\"dynamic\"")
        arrays, _ = packed_arrays("a.b", symmetric=False)
        self.check_dense(arrays, packed_config(symmetric=True), "module 'a.b'", "config_groups")
        self.check_dense(arrays, GPTQ, "module 'a.b'", "'.weight_packed'")

    def test_unknown_formats(self):
        arrays = gptq_arrays("a.b")
        self.check_dense(arrays, dict(GPTQ, checkpoint_format="marlin"), "module 'a.b'", "'marlin' is not supported")
        self.check_dense(arrays, dict(GPTQ, is_marlin_format=True), "module 'a.b'", "'marlin' is not supported")
        self.check_dense(arrays, {"quant_method": "awq", "bits": 4, "version": "gemv"}, "'a.b'", "'gemv'")
        self.check_dense(arrays, {"quant_method": "new"}, "config.json", "'new' is not supported")
        self.check_dense(arrays, None, "1 quantized module", "no quantization configuration", folder="bare")
        arrays, _ = packed_arrays("a.b", 8)
        self.check_dense(arrays, packed_config(5), "config_groups with 2, 4 or 8 bits")

    def test_name_collision(self):
        arrays = dict(gptq_arrays("a.b"), **{"a.b": numpy.zeros(3, numpy.float32)})
        self.check_dense(arrays, GPTQ, "module 'a.b'", "a tensor has the module's name")

    def test_one_bad_module_leaves_the_others_grouped(self):
        arrays = {**gptq_arrays("good"), **gptq_arrays("wide", bits=8)}
        content, warnings = self.convert(self.checkpoint(arrays, GPTQ))
        self.check_kept(content, arrays)
        self.assertEqual(content["objects"]["good"]["format"], "quantized_group")
        self.assertEqual(content["objects"]["wide.qweight"]["format"], "dense")
        self.assertEqual(len(warnings), 1)
        self.assertIn("module 'wide'", warnings[0])

    def test_a_hundred_bad_modules_are_twenty_one_warnings(self):
        arrays = {name: array for i in range(100) for name, array in gptq_arrays(f"m.{i}", 8, seed=i).items()}
        content, warnings = self.convert(self.checkpoint(arrays, GPTQ))
        self.check_kept(content, arrays)
        self.assertEqual(len(warnings), 21)
        self.assertIn("80 more modules stay as separate tensors", warnings[-1])

    def test_a_pipe_is_not_grouped(self):
        self.expect(DONE, "convert", "-", "--quant", "group", "-o", "out.zt", says="a pipe cannot be reordered",
                    stdin=(DATA / "gptq/model.safetensors").read_bytes())
        objects = read_zt(self.path("out.zt"))["objects"]
        self.assertEqual({thing["format"] for thing in objects.values()}, {"dense"})

    def test_renamed_groups_give_their_tensors_back_under_the_new_name(self):
        arrays = gptq_arrays("model.q") | {"model.norm": numpy.ones(4, numpy.float32)}
        folder = self.checkpoint(arrays, GPTQ)
        for copy in "ab":
            self.succeed("convert", folder, "--quant", "group", "--rename", f"s/^model/{copy}/", "-o", f"{copy}.zt")
        self.succeed("convert", "a.zt", "b.zt", "-o", "both.zt")
        self.succeed("extract", "both.zt", "-o", "both.safetensors")
        want = {copy + name.removeprefix("model"): array.tobytes() for name, array in arrays.items() for copy in "ab"}
        got, _ = make_safetensors.read(self.path("both.safetensors"))
        self.assertEqual({name: data for name, (_, _, data) in got.items()}, want)
        self.succeed("verify", "both.zt", "--against", "both.safetensors")

    def test_each_folder_has_its_own_configuration(self):
        first = self.checkpoint(gptq_arrays("m"), dict(GPTQ, checkpoint_format="gptq_v2"), "first")
        second = self.checkpoint(gptq_arrays("n"), None, "second")
        plain = self.checkpoint({"x": numpy.ones(3, numpy.float32)}, None, "plain")
        content, warnings = self.convert(first, second, plain)
        self.assertEqual(content["objects"]["m"]["format"], "quantized_group")
        self.assertEqual(content["objects"]["m"]["attributes"]["zero_offset"], 0)
        self.assertEqual(content["objects"]["n.qweight"]["format"], "dense")
        self.assertEqual(len(warnings), 1, warnings)
        self.assertIn("no quantization configuration", warnings[0])
        # Files of one folder are one checkpoint, in whatever order they are named.
        folder = self.checkpoint(gptq_arrays("o"), GPTQ, "third", files=2)
        parts = sorted(folder.glob("*.safetensors"))
        content, warnings = self.convert(parts[1], plain, parts[0])
        self.assertEqual(content["objects"]["o"]["format"], "quantized_group")
        self.assertEqual(warnings, [])

    def test_other_configuration_files(self):
        folder = self.checkpoint(gptq_arrays("m"), None)
        self.put("model/quantize_config.json", json.dumps({"bits": 4, "group_size": 32, "desc_act": False}).encode())
        self.put("model/config.json", b'{"model_type": "llama"}')
        content, warnings = self.convert(folder)
        self.assertEqual(warnings, [])
        self.assertEqual(content["objects"]["m"]["format"], "quantized_group")
        self.assertEqual(content["attributes"]["quantization_config"]["file"], "quantize_config.json")
        shutil.copytree(DATA / "awq", self.path("awq"))
        self.path("awq/config.json").unlink()
        self.put("awq/quant_config.json",
                 json.dumps({"zero_point": True, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}).encode())
        content, warnings = self.convert(self.path("awq"))
        self.assertEqual(warnings, [])
        self.assertEqual(content["objects"]["model.layers.0.q_proj"]["attributes"]["version"], "GEMM")

    def test_malformed_configuration(self):
        folder = self.checkpoint(gptq_arrays("m"), None)
        for text, says in [(b"{", "not JSON"), (b"[]", "not a JSON object"), (b"", "not JSON"),
                           (b'{"quantization_config": 4}', "quantization_config is not a JSON object"),
                           (b'{"quantization_config": {"bits": 4, "bits": 8}}', "'bits' occurs twice"),
                           (b'{"quantization_config": {"a":' + b"[" * 200 + b"]" * 200 + b"}}", "nests deeper")]:
            self.put("model/config.json", text)
            self.fail_with(INVALID, "convert", folder, "--quant", "group", "-q", "-o", "x.zt",
                           says=("config.json", says))
            self.assertFalse(self.path("x.zt").exists())
        self.succeed("convert", folder, "-q", "-o", "x.zt")  # which does not ask for it
