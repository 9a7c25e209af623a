"""Inputs as their own libraries write them: onnx, h5py, the gguf package of llama.cpp (Debian: python3-onnx, python3-h5py,
python3-gguf). scripts/try-writers.py converts each.

A writer is a generator: given a folder, it yields (name, path, expected). `expected` is a dict of name to numpy array for
what must come through, each of these with its bytes; None for what may also be refused, with a message that names the tensor and
says what to do.
"""
import io
import json
import pathlib
import zipfile

import numpy

DICE = numpy.random.default_rng(37)


def weights(*shape, dtype="f4"):
    return DICE.standard_normal(shape).astype(dtype)


# ---- onnx ------------------------------------------------------------------------------------------------------


def onnx_writers(folder):
    import ml_dtypes
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def save(name, nodes=(), arrays=None, tensors=(), sparse=(), expected="arrays", **options):
        initializers = [numpy_helper.from_array(array, key) for key, array in (arrays or {}).items()]
        graph = helper.make_graph(list(nodes), "g", [], [], initializer=initializers + list(tensors),
                                  sparse_initializer=list(sparse))
        model = helper.make_model(graph, **options)
        path = pathlib.Path(folder) / f"{name}.onnx"
        onnx.save(model, path)
        return f"onnx {name}", path, arrays if expected == "arrays" else expected

    def constant(output, array):
        return helper.make_node("Constant", [], [output], value=numpy_helper.from_array(array, "own name"))

    def learning(kind, output, **attributes):
        return helper.make_node(kind, ["x"], [output], domain="ai.onnx.ml", **attributes)

    kinds = {"float32": "f4", "float64": "f8", "float16": "f2", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8",
             "uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "complex64": "c8", "bool": "?",
             "bfloat16": ml_dtypes.bfloat16, "e4m3fn": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
             "e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "e8m0": ml_dtypes.float8_e8m0fnu}
    of_kind = {name: DICE.integers(0, 2, 12).astype(dtype).reshape(3, 4) for name, dtype in kinds.items()}
    for name, array in of_kind.items():
        yield save(f"raw {name}", arrays={"w": array, "scalar": array[0, 0].reshape(()), "empty": array[:0]})

    typed = {}
    for name in ("float32", "float64", "float16", "int8", "uint16", "int64", "uint64", "bool", "bfloat16", "e4m3fn", "complex64"):
        array = of_kind[name]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        typed[name] = helper.make_tensor(name, kind, array.shape, array.ravel().tolist())
    yield save("typed", tensors=typed.values(), expected={name: of_kind[name] for name in typed})
    large = TensorProto(name="x", data_type=TensorProto.FLOAT16, dims=[5_000_000])
    halves = weights(5_000_000, dtype="f2")
    large.int32_data.extend(halves.view("u2").tolist())
    yield save("typed large", tensors=[large], expected={"x": halves})

    arrays = {"a": weights(64, 64), "b/c.d": weights(3, dtype="f8"), "größe": weights(2, 2), "n": numpy.int64(7).reshape(())}
    model = helper.make_model(helper.make_graph([constant("k", arrays["a"])], "g", [], [], initializer=[
        numpy_helper.from_array(array, name) for name, array in arrays.items()]))
    for name, options in {"one file": {}, "a file each": {"all_tensors_to_one_file": False}, "with attributes": {
            "convert_attribute": True}, "every tensor": {"size_threshold": 0}}.items():
        below = pathlib.Path(folder) / f"external {name}"
        below.mkdir()
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save_model(copy, below / "m.onnx", save_as_external_data=True, **options)
        yield f"onnx external {name}", below / "m.onnx", {**arrays, "k": arrays["a"]}

    one, two = weights(3, 4), weights(3, 4)
    info = [helper.make_tensor_value_info("o", 1, [3, 4])]
    branch = lambda name, first, second: helper.make_graph(
        [constant("o", first)], name, [], info, initializer=[numpy_helper.from_array(second, "inner")])
    choice = lambda other: helper.make_node("If", ["c"], ["y"], then_branch=branch("t", one, two), else_branch=branch("e", one, other))
    yield save("branches alike", [choice(two)], expected={"o": one, "inner": two})
    yield save("branches apart", [choice(one)], arrays={"w": one}, expected=None)
    body = helper.make_graph([constant("step", one)], "body", [], info, initializer=[numpy_helper.from_array(two, "in loop")])
    yield save("loop", [helper.make_node("Loop", ["m", "c"], ["y"], body=body)], expected={"step": one, "in loop": two})
    function = lambda domain, array: helper.make_function(
        domain, "F", ["x"], ["y"], [constant("c", array), helper.make_node("Add", ["x", "c"], ["y"])], [helper.make_opsetid("", 17)])
    yield save("function", functions=[function("mine", one)], expected={"F/c": one})
    yield save("functions of two domains", functions=[function("a", one), function("b", two)], expected={"F/c": one, "b.F/c": two})

    node = lambda output, **value: helper.make_node("Constant", [], [output], **value)
    yield save("constants", [node("f", value_float=2.5), node("fs", value_floats=[1.0, 2.0]), node("i", value_int=-3),
                             node("is", value_ints=[1, 1 << 40]), node("t", value_strings=["a"])],
               expected={"f": numpy.float32(2.5).reshape(()), "fs": numpy.float32([1, 2]), "i": numpy.int64(-3).reshape(()),
                         "is": numpy.int64([1, 1 << 40])})
    floats, ints = weights(7), numpy.arange(7)
    for name, attributes in {
            "LinearRegressor": {"coefficients": floats, "intercepts": floats[:1]},
            "LinearClassifier": {"coefficients": floats, "intercepts": floats[:2], "classlabels_ints": ints[:2]},
            "SVMRegressor": {"coefficients": floats, "support_vectors": floats, "rho": floats[:1], "kernel_params": floats[:3]},
            "SVMClassifier": {"coefficients": floats, "vectors_per_class": ints[:2], "prob_a": floats[:1], "prob_b": floats[:1]},
            "TreeEnsembleRegressor": {"nodes_values": floats, "nodes_treeids": ints, "nodes_nodeids": ints, "target_weights": floats},
            "TreeEnsembleClassifier": {"nodes_values": floats, "class_weights": floats, "class_ids": ints},
            "Scaler": {"offset": floats, "scale": floats}, "Imputer": {"imputed_value_floats": floats},
            "Normalizer": {}, "OneHotEncoder": {"cats_int64s": ints}, "LabelEncoder": {"keys_floats": floats, "values_int64s": ints},
            "ArrayFeatureExtractor": {}}.items():
        yield save(name, [learning(name, "y", **{key: array.tolist() for key, array in attributes.items()})],
                   arrays={"w": one}, expected={"w": one, **{f"y/{key}": array for key, array in attributes.items()}})
    yield save("TreeEnsemble", [learning("TreeEnsemble", "y", nodes_splits=numpy_helper.from_array(floats.astype("f8")),
                                         leaf_weights=numpy_helper.from_array(floats), tree_roots=[0, 1])],
               expected={"y/nodes_splits": floats.astype("f8"), "y/leaf_weights": floats, "y/tree_roots": ints[:2]})
    yield save("TfIdfVectorizer", [helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode="TFIDF", min_gram_length=1, max_gram_length=1,
                                                    max_skip_count=0, ngram_counts=[0], ngram_indexes=ints.tolist(),
                                                    pool_int64s=ints.tolist(), weights=floats.tolist())],
               expected={"y/weights": floats, "y/pool_int64s": ints, "y/ngram_indexes": ints, "y/ngram_counts": ints[:1]})
    yield save("strings", tensors=[helper.make_tensor("s", TensorProto.STRING, [2], [b"a", b"b"])], arrays={"w": one}, expected=None)
    for name in ("INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2"):
        if hasattr(TensorProto, name):
            yield save(name, tensors=[helper.make_tensor("q", getattr(TensorProto, name), [5], [1, 0, 1, 1, 0])], expected=None)
    sparse = lambda indices: helper.make_sparse_tensor(
        helper.make_tensor("s", 1, [2], [1.0, 2.0]), helper.make_tensor("i", 7, numpy.shape(indices), numpy.ravel(indices).tolist()), [3, 4])
    yield save("sparse by cell", sparse=[sparse([1, 11])], expected=None)
    yield save("sparse by index", sparse=[sparse([[0, 1], [2, 3]])], expected=None)
    yield save("sparse constant", [node("k", sparse_value=sparse([1, 11]))], expected=None)
    path = save("metadata", arrays={"w": one})[1]
    model = onnx.load(path)
    helper.set_model_props(model, {"vocabulary": "x" * (3 << 20), "author": "größe", "empty": ""})
    onnx.save(model, path)
    yield "onnx metadata", path, {"w": one}
    for suffix in ("textproto", "json", "onnxtxt"):
        path = pathlib.Path(folder) / f"text.{suffix}"
        onnx.save(model, path)
        yield f"onnx as {suffix}", path, None


# ---- HDF5 ------------------------------------------------------------------------------------------------------


def hdf5_writers(folder):
    import h5py

    def file(name, **options):
        return h5py.File(pathlib.Path(folder) / f"{name}.h5", "w", **options)

    def done(name, expected, extra="h5"):
        return f"hdf5 {name}", pathlib.Path(folder) / f"{name}.{extra}", expected

    floats, ints = weights(50, 30), numpy.arange(1500, dtype="i4").reshape(50, 30)
    for version in ("earliest", "v108", "v110"):
        with file(version, libver=(version, "v110")) as out:
            out["a/b"], out["c"] = floats, ints
            out.create_dataset("z", data=ints, chunks=(7, 11), compression="gzip", maxshape=(None, None))
        yield done(version, {"a/b": floats, "c": ints, "z": ints})
    for version in ("v112", "v114", "latest"):
        with file(version, libver=(version, "latest")) as out:
            out["a/b"] = floats
            out.create_dataset("z", data=ints, chunks=(7, 11), compression="gzip")
        yield done(version, None)
    filters = {"gzip": {"compression": "gzip"}, "shuffle": {"compression": 9, "shuffle": True}, "fletcher": {"fletcher32": True},
               "scaleoffset": {"scaleoffset": 0}, "szip": {"compression": "szip"}, "no filter": {"chunks": (50, 1)}}
    for name, options in filters.items():
        try:
            with file(name) as out:
                out.create_dataset("x", data=ints, **options)
        except ValueError:  # this libhdf5 cannot encode it
            continue
        yield done(name, {"x": ints})
    with file("lzf") as out:
        out.create_dataset("x", data=ints, compression="lzf")
        out["good"] = floats
    yield done("lzf", None)
    with file("types") as out:
        arrays = {kind: DICE.integers(0, 2, 20).astype(kind) for kind in (
            "<f2", ">f4", "<f8", ">i2", "<i8", "u1", ">u4", "<u8", "?", ">c8")}
        for name, array in arrays.items():
            out[name.strip("<>")] = array
    yield done("types", {name.strip("<>"): array for name, array in arrays.items()})
    with file("no numbers") as out:
        out["good"] = floats
        out["text"] = "abc"
        out["texts"] = ["a", "b"]
        out["fixed"] = numpy.array([b"ab", b"c"])
        out["record"] = numpy.zeros(3, [("a", "f4"), ("b", "i4")])
        out["lists"] = numpy.array([numpy.arange(2), numpy.arange(3)], dtype=h5py.vlen_dtype("i4"))
        out["null"], out["void"], out["reference"] = h5py.Empty("f4"), numpy.void(b"abc"), out.ref
    yield done("no numbers", None)
    with file("links") as out:
        out["a/w"] = floats
        out["hard"], out["soft"], out["nowhere"] = out["a/w"], h5py.SoftLink("/a/w"), h5py.SoftLink("/none")
        out["group"] = out["a"]
    yield done("links", {"a/w": floats, "hard": floats, "soft": floats})
    with file("out of the file") as out:
        out["good"], out["external"] = floats, h5py.ExternalLink("other.h5", "x")
        out.create_dataset("raw", (4,), "f4", external=[("raw.bin", 0, 16)])
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource("part.h5", "x", (4,))
        out.create_virtual_dataset("virtual", layout)
    yield done("out of the file", None)
    with file("enumeration") as out:
        out.create_dataset("e", data=numpy.int16([0, 5]), dtype=h5py.enum_dtype({"A": 0, "B": 5}, basetype="i2"))
    yield done("enumeration", {"e": numpy.int16([0, 5])})
    with file("fill") as out:
        out.create_dataset("contiguous", (5, 3), "f4", fillvalue=2.5)
        out.create_dataset("chunked", (5, 3), ">i4", chunks=(2, 2), fillvalue=-3)
        out.create_dataset("partly", (5, 3), "f8", chunks=(2, 2), fillvalue=1)[1:3, 1] = 9
        filled = {name: out[name][()] for name in out}
    yield done("fill", filled)
    with file("never written") as out:
        out["good"] = floats
        out.create_dataset("huge", (1 << 42,), "f4", chunks=(1 << 20,))
    yield done("never written", None)
    with file("user block", userblock_size=4096) as out:
        out["x"] = floats
    yield done("user block", {"x": floats})
    with file("paged", fs_strategy="page", fs_persist=True, fs_page_size=4096) as out:
        out["x"], out["z"] = floats, ints
    yield done("paged", {"x": floats, "z": ints})
    with file("order", track_order=True) as out:
        arrays = {f"layer {i}/w": numpy.float32(i).reshape(()) for i in range(300)}
        for name, array in arrays.items():
            out[name] = array
    yield done("order", arrays)
    with file("grown", libver=("v110", "v110")) as out:
        grown = out.create_dataset("x", (0, 30), "f4", chunks=(8, 30), maxshape=(None, 30))
        out.swmr_mode = True
        for row in range(50):
            grown.resize((row + 1, 30))
            grown[row] = floats[row]
        grown.flush()
    yield done("grown", {"x": floats})
    with file("shrunk") as out:
        out.create_dataset("x", data=ints, chunks=(8, 7), maxshape=(None, None)).resize((20, 9))
    yield done("shrunk", {"x": ints[:20, :9]})
    with file("compact") as out:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.COMPACT)
        made = h5py.h5d.create(out.id, b"x", h5py.h5t.STD_I16BE, h5py.h5s.create_simple((5,)), dcpl=layout)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, numpy.arange(5, dtype=">i2"))
    yield done("compact", {"x": numpy.arange(5, dtype="i2")})
    with file("not UTF-8") as out:
        out["good"], out[b"caf\xe9"] = floats, ints
    yield done("not UTF-8", None)
    with file("unicode") as out:
        out["größe/重み"] = floats
        out.attrs["größe"] = "ü"
    yield done("unicode", {"größe/重み": floats})
    with file("attributes") as out:
        out["x"] = floats
        out.attrs.update(text="t", texts=["a", "b"], none=[], number=3, numbers=[1.5, 2], flag=True, matrix=numpy.eye(2),
                         null=h5py.Empty("f4"), long="x" * 200_000, record=numpy.zeros(1, [("a", "f4")]))
    yield done("attributes", {"x": floats})
    with file("scales") as out:  # as netCDF and PyTables use them
        out["x"], out["axis"] = floats, numpy.arange(50)
        out["axis"].make_scale("axis")
        out["x"].dims[0].attach_scale(out["axis"])
    yield done("scales", {"x": floats, "axis": numpy.arange(50)})
    with file("keras 2") as out:
        out.attrs.update(model_config=json.dumps({"a": "x" * 70_000}), keras_version="2.15.0", backend="tensorflow")
        group = out.create_group("model_weights")
        group.attrs["layer_names"] = [b"dense", b"dropout"]
        group.create_group("dropout").attrs["weight_names"] = numpy.zeros(0, "S1")
        dense = group.create_group("dense")
        dense.attrs["weight_names"] = [b"dense/kernel:0"]
        dense["dense/kernel:0"] = floats
        out["optimizer_weights/iteration:0"] = numpy.int64(3)
    yield done("keras 2", {"model_weights/dense/dense/kernel:0": floats, "optimizer_weights/iteration:0": numpy.int64(3).reshape(())})
    content = io.BytesIO()
    with h5py.File(content, "w") as out:
        out["layers/dense/vars/0"] = floats
        out["optimizer/vars/0"] = numpy.int64(5)
        out.create_group("layers/dropout/vars")
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(pathlib.Path(folder) / f"{name}.keras", "w", method) as archive:
            archive.writestr("metadata.json", "{}")
            archive.writestr("config.json", "{}")
            archive.writestr("model.weights.h5", content.getvalue())
        yield done(name, {"layers/dense/vars/0": floats, "optimizer/vars/0": numpy.int64(5).reshape(())}, "keras")


# ---- GGUF ------------------------------------------------------------------------------------------------------


def gguf_writers(folder):
    import gguf

    def save(name, arrays, expected="arrays", kinds=None, then=lambda writer: None, **options):
        path = pathlib.Path(folder) / f"{name}.gguf"
        writer = gguf.GGUFWriter(path, "llama", **options)
        writer.add_name(name)
        then(writer)
        for key, array in arrays.items():
            writer.add_tensor(key, array, raw_dtype=(kinds or {}).get(key))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return f"gguf {name}", path, arrays if expected == "arrays" else expected

    floats = weights(6, 256)
    plain = {kind: DICE.integers(0, 9, (3, 4)).astype(kind) for kind in ("f4", "f2", "f8", "i1", "i2", "i4", "i8")}
    yield save("plain types", plain)
    yield save("big-endian", plain, endianess=gguf.GGUFEndian.BIG)
    yield save("one to four dimensions", {f"d{n}": weights(*[2, 3, 4, 5][:n]) for n in range(1, 5)})
    yield save("a name of 63 bytes", {"n" * 63: floats})
    yield save("no tensors", {})
    yield save("one element", {"x": weights(1)})
    yield save("odd sizes", {f"t{i}": weights(i) for i in range(1, 40)})
    yield save("alignment", {"a": weights(3), "b": weights(5)}, then=lambda writer: writer.add_custom_alignment(64))

    def every_kind_of_value(writer):
        for kind, value in {"uint8": 255, "int8": -128, "uint16": 65535, "int16": -1, "uint32": 1 << 31, "int32": -5, "uint64": 1 << 63,
                            "int64": -1 << 62, "float32": 1.5, "float64": 1e300, "bool": True, "string": "größe"}.items():
            getattr(writer, f"add_{kind}")(f"own.{kind}", value)
        for name, value in {"ints": [1, -2, 3], "floats": [0.5, 1.5], "bools": [True, False], "texts": ["a", "", "ü"],
                            "many": list(range(1000))}.items():
            writer.add_array(f"own.{name}", value)

    yield save("values of every kind", {"x": floats}, then=every_kind_of_value)

    def vocabulary(writer):
        writer.add_tokenizer_model("llama")
        writer.add_token_list([f"token {i}".encode() for i in range(30_000)])
        writer.add_token_scores([float(i) for i in range(30_000)])
        writer.add_token_types([1] * 30_000)

    yield save("a vocabulary", {"token_embd.weight": floats}, then=vocabulary)
    quantized = gguf.GGMLQuantizationType
    for kind in (quantized.Q4_0, quantized.Q4_1, quantized.Q5_0, quantized.Q5_1, quantized.Q8_0, quantized.BF16, quantized.TQ1_0,
                 quantized.TQ2_0, quantized.MXFP4 if hasattr(quantized, "MXFP4") else quantized.Q8_0):
        try:
            blocks = gguf.quants.quantize(floats, kind)
        except NotImplementedError:
            continue
        yield save(f"blocks of {kind.name}", {"x": blocks}, expected=None, kinds={"x": kind})
    for kind in (quantized.Q2_K, quantized.Q3_K, quantized.Q4_K, quantized.Q5_K, quantized.Q6_K, quantized.IQ2_XXS, quantized.IQ4_XS,
                 quantized.IQ1_S, quantized.IQ3_S):
        _, size = gguf.GGML_QUANT_SIZES[kind]
        yield save(f"blocks of {kind.name}", {"x": DICE.integers(0, 256, (6, size), dtype="u1")}, expected=None, kinds={"x": kind})
    path = pathlib.Path(folder) / "split.gguf"
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=2)
    parts = {f"t{i}": weights(5, 3) for i in range(5)}
    for key, array in parts.items():
        writer.add_tensor(key, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    yield "gguf split", sorted(pathlib.Path(folder).glob("split-*.gguf"))[0], parts


WRITERS = [onnx_writers, hdf5_writers, gguf_writers]
