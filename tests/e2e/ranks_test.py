"""Tensors that several ranks wrote: put together where all parts are there, and refused where they are not."""
import itertools
import json
import math
import os
import random

import numpy

import make_zt
import ranks
from pickle_assembler import archive, dictionary, number, tensor
from support import DATA, EXISTS, INVALID, UNSUPPORTED, USAGE, EndToEnd, read_zt

NAME = "shard-{:05d}-model-00001-of-00001.safetensors"
COUNT = int(os.environ.get("ZT_COUNT", "12"))


class Ranks(EndToEnd):

    def values(self, source, *options):
        """{name: array} of what convert makes."""
        found = {}
        for name, entry in self.converted(source, *options)["objects"].items():
            self.assertEqual(entry["format"], "dense")
            self.assertEqual(entry.get("attributes") or {}, {})
            data = entry["components"]["data"]
            kind = {"f32": "<f4", "f64": "<f8", "i16": "<i2"}[data["dtype"]]
            found[name] = numpy.frombuffer(data["bytes"], kind).reshape(entry["shape"])
        return found

    def same(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for name, array in expected.items():
            self.assertEqual((name, found[name].shape), (name, array.shape))
            self.assertTrue(numpy.array_equal(found[name], array), name)

    def written(self, folder, files):
        for name, content in files.items():
            self.put(f"{folder}/{name}", content)
        return self.path(folder)

    def refused(self, source, says, status=INVALID):
        sources = source if isinstance(source, list) else [source]
        self.fail_with(status, "convert", "-f", *sources, "-o", self.path("x.zt"), says=says)
        self.assertFalse(self.path("x.zt").exists())

    # ---- what torch wrote ----

    def whole(self, *shape, kind="f4"):
        return numpy.arange(math.prod(shape), dtype=kind).reshape(shape)

    def test_safetensors_of_torch(self):
        source = DATA / "ranks/safetensors"
        expected = {"model.w": self.whole(7, 3), "columns": self.whole(3, 5, kind="f8"), "copies": self.whole(4),
                    "few": self.whole(2, 2)}
        self.same(self.values(source), expected)
        self.same(self.values(source, "--include", "glob:c*"), {name: expected[name] for name in ("columns", "copies")})
        files = sorted(source.iterdir())
        self.expect(0, "convert", *files, "-o", self.path("files.zt"), says=(
            "no file says the shapes of 4 tensors, ", " the first: they reach as far as the parts in 7 files, and ", "end too early if the file of a last rank is missing"))
        self.expect(0, "diff", source, self.path("files.zt"))
        self.refused(files[0], "it may be the first part of a tensor")
        self.refused(files[2], "it is one rank's part of a tensor, at [0, 2]; name the files of all ranks, or their folder")
        self.refused(files[:2] + files[3:], ("tensor 'columns'", "its parts hold 9 of 15 elements, in 3 of 6 files"))

    def test_shards_of_ranks_are_not_kept_where_one_was_replaced(self):
        array = numpy.arange(4000, dtype="f4").reshape(40, 100)
        folder = self.written("ranks", {NAME.format(at + 1): ranks.safetensors({"w": ([20 * at, 0], array[20 * at:20 * at + 20])})
                                        for at in range(2)})
        whole = ("convert", folder, "-o", self.path("m.zt"), "--shards", "1")
        self.succeed(*whole)
        self.succeed(*whole)
        self.put(f"ranks/{NAME.format(2)}", ranks.safetensors({"w": ([20, 0], -array[20:])}))
        self.expect(EXISTS, *whole, says="belongs to other shards")

    def test_dtensors_of_torch(self):
        source = DATA / "ranks/dtensor"
        expected = {"model.rows": self.whole(7, 3), "model.columns": self.whole(3, 5, kind="f8"), "model.copies": self.whole(4),
                    "model.few": self.whole(2, 2), "model.both": self.whole(5, 6), "model.twice": self.whole(9, 2),
                    "lr": numpy.array(0.5, "f4")}
        self.same(self.values(source), expected)
        files = sorted(source.iterdir())
        self.expect(0, "convert", *reversed(files), "-o", self.path("files.zt"))
        self.expect(0, "diff", source, self.path("files.zt"))
        self.refused(files[1], ("tensor 'model.rows'", "it is one rank's part, at [0, 0], of a tensor of shape [7, 3]"))
        self.same(self.values(files[3], "--include", "model.copies"), {"model.copies": self.whole(4)})
        # Of each tensor that is cut along one dimension of the mesh, two ranks have the same.
        self.refused(files[:3], ("tensor 'model.both'", "its parts hold 24 of 30 elements"))
        self.refused(DATA / "ranks/partial.pt", ("tensor 'sum'", "Partial", "save its full_tensor()"), UNSUPPORTED)

    def test_sharded_tensors_of_torch(self):
        self.same(self.values(DATA / "ranks/sharded"), {"w": self.whole(5, 4), "bias": self.whole(3)})
        self.refused(DATA / "ranks/sharded/sharded_rank1.pt",
                     "it is one rank's part, at [3, 0], of a tensor of shape [5, 4]")

    def test_sharded_tensors_of_fewer_rows_than_ranks(self):
        """FSDP cuts each tensor by rows, and gives the last ranks no shard of those that have fewer."""
        w, b, files = self.whole(4, 2), self.whole(2), {}
        for rank in range(4):
            some = ranks.sharded_tensor((2,), (rank,), b[rank:rank + 1], "b") if rank < 2 else ranks.sharded_tensor((2,))
            files[f"sharded_rank{rank}.pt"] = archive(
                dictionary(w=ranks.sharded_tensor((4, 2), (rank, 0), w[rank:rank + 1], "w"), b=some),
                {"w": w[rank:rank + 1].tobytes(), "b": b[rank:rank + 1].tobytes()})
        folder = self.written("fsdp", files)
        self.same(self.values(folder), {"w": w, "b": b})
        self.fail_with(INVALID, "convert", folder / "sharded_rank3.pt", "--include", "b", "-o", self.path("x.zt"),
                       says="it is one rank's part, at [2], of a tensor of shape [2]")
        (folder / "sharded_rank1.pt").unlink()
        self.refused(folder, ("tensor 'w'", "its parts hold 6 of 8 elements"))
        self.refused(self.put("none.pt", archive(dictionary(s=ranks.sharded_tensor(())))), "which has no shard", UNSUPPORTED)

    # ---- any split ----

    def splits(self, seed):
        """Random tensors on a random mesh: {name: (array, placements)} and the mesh."""
        choose = random.Random(seed)
        mesh = tuple(choose.randint(1, 4) for _ in range(choose.randint(1, 3)))
        tensors = {}
        for at in range(6):
            shape = tuple(choose.choice((0, 1, 2, 5, 7, 8, 33)) for _ in range(choose.randint(1, 3)))
            kind = choose.choice(("float32", "float64", "int16"))
            array = numpy.random.default_rng(seed + at).integers(0, 10000, shape).astype(kind)
            tensors[f"t{at}"] = array, [choose.choice((None, *range(len(shape)))) for _ in mesh]
        tensors["scalar"] = numpy.array(seed, "float32"), [None] * len(mesh)
        return mesh, tensors

    def test_random_meshes(self):
        for seed in range(COUNT):
            with self.subTest(seed=seed):
                mesh, tensors = self.splits(seed)
                one, other, expected = {}, {}, {}
                version = ("axes", "layout", "mesh")[seed % 3]
                for rank, place in enumerate(itertools.product(*map(range, mesh))):
                    parts, local, seen = {}, {}, set()
                    for name, (array, placements) in tensors.items():
                        expected[name] = array
                        offsets, box = ranks.boxes(array.shape, mesh, placements)[place]
                        part = ranks.part_of(array, offsets, box).copy()
                        local[name] = part, array.shape, mesh, place, placements, version
                        first = all(at == 0 for at, dim in zip(place, placements) if dim is None)
                        if first:  # torch.distributed.checkpoint saves copies once
                            parts[name] = offsets, part
                        seen.add(name)
                    one[NAME.format(rank + 1)] = ranks.safetensors(parts)
                    other[f"model_world_size_{math.prod(mesh)}_rank_{rank}.pt"] = ranks.torch_file(local)
                self.same(self.values(self.written(f"st{seed}", one)), expected)
                self.same(self.values(self.written(f"pt{seed}", other)), expected)

    def test_lines_longer_and_shorter_than_reads(self):
        """Parts of several MiB, which a conversion reads in pieces."""
        tensors = {"rows": (self.whole(700, 3001), [0, 0]), "columns": (self.whole(1500, 999), [1, 1]),
                   "both": (self.whole(3001, 511), [0, 1]), "inner": (self.whole(9, 301, 200), [1, 2])}
        files, mesh = {}, (3, 5)
        for rank, place in enumerate(itertools.product(*map(range, mesh))):
            files[NAME.format(rank + 1)] = ranks.safetensors({
                name: (box[0], ranks.part_of(array, *box).copy()) for name, (array, placements) in tensors.items()
                for box in [ranks.boxes(array.shape, mesh, placements)[place]]})
        source = self.written("large", files)
        self.same(self.values(source), {name: array for name, (array, _) in tensors.items()})
        self.succeed("convert", source, "-o", self.path("b.zt"), "--threads", "1", "--memory", "8MiB")
        self.expect(0, "diff", source, self.path("b.zt"))

    def test_random_boxes(self):
        """Tensors cut again and again, so that boxes of many sizes lie beside one another; read in pieces of many sizes."""
        for seed in range(COUNT):
            with self.subTest(seed=seed):
                choose = random.Random(seed)
                rank = choose.randint(1, 4)
                array = self.whole(*(choose.randint(1, (9000, 900, 70, 20)[rank - 1]) for _ in range(rank)),
                                   kind=choose.choice(["f4", "f8", "i2"]))
                boxes = [tuple(slice(0, size) for size in array.shape)]
                for _ in range(choose.randint(1, 3)):
                    axis, boxes, whole = choose.randrange(rank), [], boxes
                    for box in whole:
                        low, high = box[axis].start, box[axis].stop
                        ends = sorted({low, high, *(choose.randint(low, high) for _ in range(choose.choice((0, 1, 6))))})
                        boxes += [box[:axis] + (slice(*cut),) + box[axis + 1:] for cut in itertools.pairwise(ends)]
                choose.shuffle(boxes)
                source = self.written(f"boxes{seed}", {
                    NAME.format(at + 1): ranks.safetensors({"w": ([cut.start for cut in box], array[box].copy())})
                    for at, box in enumerate(boxes)})
                self.same(self.values(source, "--threads", choose.choice("128"), "--memory", choose.choice(("1MiB", "64MiB")),
                                      *choose.choice(((), ("--zstd", "--chunk", "64KiB"), ("--zstd=planes",)))), {"w": array})

    def test_many_narrow_columns(self):
        """Lines of 2 to 48 bytes, of more ranks than are placed together; some planes have fewer lines than a turn.
        The first rank has one column, so that reads begin in the midst of lines."""
        count, kinds = 22, ("i2", "f4", "f8")
        leads = {"rows": (1001,), "planes": (3, 100), "low": (40, 9), "large": (2, 60000)}
        shapes = [(kind, width, lead) for kind in kinds for width in (1, 2, 4, 6) for lead in leads
                  if lead != "large" or (kind, width) == ("i2", 2)]
        tensors = {f"{lead} of {width} {kind}": (self.whole(*leads[lead], (count - 1) * width + 1, kind=kind), width)
                   for kind, width, lead in shapes}
        files = {}
        for rank in range(count):
            parts = {}
            for name, (array, width) in tensors.items():
                begin, end = max(0, (rank - 1) * width + 1), rank * width + 1
                parts[name] = (0,) * (array.ndim - 1) + (begin,), array[..., begin:end].copy()
            files[NAME.format(rank + 1)] = ranks.safetensors(parts)
        source = self.written("narrow", files)
        for options in ((), ("--threads", "1", "--memory", "1MiB"), ("--zstd", "--chunk", "4KiB")):
            self.same(self.values(source, *options), {name: array for name, (array, _) in tensors.items()})

    # ---- what is not whole ----

    def rows(self, *parts, name="w", kind="float32"):
        """Files of ranks that have rows [low, high) of a tensor of shape [8, 3]."""
        whole = self.whole(8, 3).astype(kind)
        return {NAME.format(at + 1): ranks.safetensors({name: ((low, 0), whole[low:high].copy())})
                for at, (low, high) in enumerate(parts)}

    def test_gaps_overlaps_and_strangers(self):
        self.same(self.values(self.written("ok", self.rows((0, 3), (3, 6), (6, 8)))), {"w": self.whole(8, 3)})
        self.refused(self.written("first", self.rows((3, 6), (6, 8))), ("tensor 'w'", "its parts hold 15 of 24 elements"))
        self.refused(self.written("middle", self.rows((0, 3), (6, 8))), ("tensor 'w'", "its parts hold 15 of 24 elements"))
        self.refused(self.written("overlap", self.rows((0, 3), (2, 6), (6, 8))),
                     ("tensor 'w'", "its parts at [0, 0] in shard-00001", "and at [2, 0] in shard-00002", "overlap"))
        self.refused(self.written("again", self.rows((0, 4), (4, 8), (4, 8))), "overlap")
        files = self.rows((0, 4), (4, 8))
        files[NAME.format(2)] = self.rows((4, 8), kind="float64")[NAME.format(1)]
        self.refused(self.written("types", files), ("differ: a part is f32 of shape [4, 3], another f64 of shape [4, 3]"))
        files[NAME.format(2)] = ranks.safetensors({"w": ((4,), self.whole(4))})
        self.refused(self.written("dimensions", files), "another f32 of shape [4]")
        plain = ranks.encode({"w": ("F32", (8, 3), self.whole(8, 3).tobytes())})
        self.refused(self.written("whole", self.rows((0, 8)) | {"model.safetensors": plain}),
                     "it is a part in other files, and whole in model.safetensors")
        for says in ('{"w": {"saved_offsets": [0]}}', '{"w": {"saved_offsets": [-1, 0]}}', '{"w": {}}', "[", '["w"]'):
            self.put("info.safetensors", ranks.encode({"w": ("F32", (8, 3), self.whole(8, 3).tobytes())},
                                                      {"DCP_SHARDING_INFO": says}))
            self.refused(self.path("info.safetensors"), "begin")
        self.refused(self.put(NAME.format(1), ranks.safetensors({"w": ((1,) * 100000, self.whole(8, 3))})), (
            "tensor 'w': __metadata__ 'DCP_SHARDING_INFO' says in 100000 numbers where it begins, and it has shape [8, 3]"))
        twice = '{"w": {"saved_offsets": [0, 0]}, "w": {"saved_offsets": [8, 0]}}'
        self.refused(self.put(NAME.format(1), ranks.encode({"w": ("F32", (8, 3), self.whole(8, 3).tobytes())},
                                                           {"DCP_SHARDING_INFO": twice})), "'DCP_SHARDING_INFO' has it twice")
        self.written("huge", {NAME.format(1): ranks.safetensors({"w": ((2**64 - 1, 0), self.whole(8, 3))})})
        self.refused(self.path("huge"), "a part ends beyond 64 bits")
        # Other tensors of such files can still be taken.
        files = self.rows((0, 3), (6, 8)) | {NAME.format(3): ranks.safetensors({"b": ((0,), self.whole(3))})}
        self.same(self.values(self.written("some", files), "--exclude", "w"), {"b": self.whole(3)})
        listing = self.json("inspect", "--json", self.path("some"))
        self.assertEqual([each["shape"] for each in listing["objects"] if each["name"] == "w"], [[8, 3]])

    def test_errors_name_a_file_that_holds_the_tensor(self):
        """Not the first of the set, which has other tensors."""
        plain = [ranks.encode({name: ("F32", (3,), self.whole(3).tobytes() if at < 2 else bytes(12))})
                 for at, name in enumerate(("b", "c", "c"))]
        pickled = self.dtensors((0,), mesh=(2,))["rank0.pt"]
        for folder, files, name in (
                ("st", {NAME.format(1): ranks.safetensors({"b": ((0,), self.whole(3))})}
                 | {NAME.format(at + 2): content for at, content in enumerate(self.rows((0, 3), (5, 8)).values())}, NAME.format(2)),
                ("pt", {"rank0.pt": ranks.torch_file({"b": (self.whole(3), (3,), (1,), (0,), [0], "axes")}), "rank1.pt": pickled}, "rank1.pt"),
                ("differ", {NAME.format(at + 1): content for at, content in enumerate(plain)} | {
                    NAME.format(4): ranks.safetensors({"w": ((0,), self.whole(3))})}, NAME.format(2))):
            source = self.written(folder, files)
            for inputs in ([source], sorted(source.iterdir())):
                error = json.loads(self.run_program("convert", "-f", *inputs, "-o", self.path("x.zt"), "--json").stdout)["error"]
                self.assertEqual((error["exit_status"], error["file"]), (INVALID, str(source / name)), error)

    def test_what_one_rank_may_not_have(self):
        """Sets in which a rank has no tensor of a file, and so did not write it."""
        files = {"shard-00001-model-00001-of-00002.safetensors": ranks.safetensors({"a": ((0,), self.whole(3))}),
                 "shard-00002-model-00001-of-00002.safetensors": ranks.safetensors({"a": ((3,), self.whole(3))}),
                 "shard-00002-model-00002-of-00002.safetensors": ranks.safetensors({"b": ((0,), self.whole(2))})}
        found = self.values(self.written("two", files))
        self.assertEqual({name: array.shape for name, array in found.items()}, {"a": (6,), "b": (2,)})
        del files["shard-00002-model-00002-of-00002.safetensors"]
        self.refused(self.written("lacks", files), "lacks shards 00002")

    def test_whole_tensors_with_offsets(self):
        """torch.distributed.checkpoint writes offsets into files of whole tensors, too: their names tell."""
        content = ranks.safetensors({"w": ((0, 0), self.whole(8, 3)), "b": ((0,), self.whole(3))})
        expected = {"w": self.whole(8, 3), "b": self.whole(3)}
        folder = self.written("model", {"model-00001-of-00001.safetensors": content})
        self.same(self.values(folder), expected)
        self.same(self.values(folder / "model-00001-of-00001.safetensors"), expected)
        self.assertNotIn(b"warning", self.run_program("inspect", folder / "model-00001-of-00001.safetensors").stderr)
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        self.succeed("extract", self.path("m.zt"), "-o", f"{self.path('back')}/", "--to", "safetensors")
        self.same_folders(self.path("back"), folder)
        self.expect(0, "convert", self.put("renamed.safetensors", content), "-o", self.path("r.zt"),
                    says="if it is that of the first, its tensors may be parts of larger ones")
        self.refused(self.put(NAME.format(1), content), "it may be the first part of a tensor")

    def dtensors(self, *places, mesh=(2,), placements=(0,), **options):
        whole = self.whole(8, 3)
        files = {}
        for at, place in enumerate(places):
            box = ranks.boxes(whole.shape, mesh, [each if not isinstance(each, bytes) else None for each in placements])[place]
            files[f"rank{at}.pt"] = ranks.torch_file({"w": (
                ranks.part_of(whole, *box).copy(), options.get("shape", whole.shape), mesh, options.get("place", place),
                list(placements), "axes")}, options.get("more"))
        return files

    def test_dtensors_that_are_not_whole(self):
        self.same(self.values(self.written("ok", self.dtensors((0,), (1,)))), {"w": self.whole(8, 3)})
        self.refused(self.written("one", self.dtensors((1,))), "its parts hold 12 of 24 elements")
        self.refused(self.written("same", self.dtensors((1,), (1,))), "overlap")
        self.refused(self.written("copies", self.dtensors((0,), (0,), (0,), placements=(None,))),
                     "its part at [0, 0] is there more than 2 times")
        self.refused(self.written("shapes", self.dtensors((0,), (1,)) | {
            "rank1.pt": self.dtensors((0,), mesh=(1,))["rank0.pt"]}), "overlap")
        self.refused(self.written("place", self.dtensors((0,), place=None)), "place in the mesh is not understood", UNSUPPORTED)
        self.refused(self.written("mesh", self.dtensors((0,), place=(2,))), "place in the mesh is not understood", UNSUPPORTED)
        self.refused(self.written("local", self.dtensors((0,), shape=(9, 3))), "of shape [4, 3], and [5, 3] by its placements")
        for name in ("_StridedShard", "Partial", "_MaskPartial", "Other"):
            self.refused(self.written(name, self.dtensors((0,), placements=(ranks.placement(name, dim=number(0)),))),
                         (name, "save its full_tensor()"), UNSUPPORTED)

    def test_order_of_shards(self):
        for order in ([(0, (0, 1))], [(0, (0,)), (1, (1,))], []):
            whole, files = self.whole(8, 6), {}
            placements = [0, 1] if len(order) == 2 else [0, 0]
            for at, place in enumerate(itertools.product(range(2), range(2))):
                part = ranks.part_of(whole, *ranks.boxes(whole.shape, (2, 2), placements)[place]).copy()
                files[f"rank{at}.pt"] = ranks.torch_file({"w": (part, whole.shape, (2, 2), place, placements, "layout", order)})
            self.same(self.values(self.written(f"order{len(order)}{placements[1]}", files)), {"w": whole})
        for order in ([(0, (1, 0))], [(1, (0,)), (0, (2, 1))]):
            files = {f"rank{at}.pt": ranks.torch_file({"w": (self.whole(2, 6), (8, 6), (2, 2), place, [0, 0], "layout", order)})
                     for at, place in enumerate(itertools.product(range(2), range(2)))}
            self.refused(self.written("turned", files), "whose order of shards is not understood", UNSUPPORTED)

    def test_copies_that_differ(self):
        """Files of two steps, or of stages that number their layers each for itself."""
        def file(place, values, shape=(3,)):
            return ranks.torch_file({"norm": (values.reshape(shape), shape, (2,), (place,), [None], "axes")})
        ours, other = self.whole(3), self.whole(3) + 1
        self.same(self.values(self.written("same", {"rank0.pt": file(0, ours), "rank1.pt": file(1, ours)})), {"norm": ours})
        self.refused(self.written("steps", {"rank0.pt": file(0, ours), "rank1.pt": file(1, other)}), (
            "tensor 'norm'", "its copies at [0] in rank0.pt and rank1.pt differ; the files may be of different steps"))
        def entry(shape, last):
            data = numpy.append(numpy.zeros(math.prod(shape) - 1, "f4"), numpy.float32(last)).tobytes()
            return {"shape": shape, "components": {"data": {"dtype": "f32", "data": data}},
                    "attributes": {"ztstream.part": {"offsets": [0, 0], "shape": [4, 2], "copies": 2}}}
        files = [self.put(f"{at}.zt", make_zt.encode_1({"w": entry(shape, 0)})) for at, shape in enumerate(([4, 2], [2, 2]))]
        self.refused(files, "its copies at [0, 0] in 0.zt and 1.zt differ")

    def test_ranks_that_are_missing(self):
        """Of files that do not say which parts they have: of stages, each with tensors of its own."""
        stages = [archive(dictionary(**{name: tensor((4,), (1,))}), {"0": b"\0" * 16}) for name in ("a", "b", "c")]
        for name in ("consolidated.0{}.pth", "mp_rank_0{}_model_states.pt"):
            self.same(self.values(self.written(f"all {name[:2]}", {name.format(at): stages[at] for at in range(3)})),
                      {each: numpy.zeros(4, "f4") for each in "abc"})
            self.same(self.values(self.written(f"one {name[:2]}", {name.format(0): stages[0], "params.json": b"{}"})),
                      {"a": numpy.zeros(4, "f4")})
            set_of = name.replace("0{}", "*")
            for says, some in (("0 ", (1, 2)), ("1 ", (0, 2)), ("0, 1 ", (2,))):
                folder = self.written(f"{some} {name[:2]}", {name.format(at): stages[at] for at in some})
                self.refused(folder, f"the folder has no files {says}of '{set_of}'; name the files that are meant", USAGE)
        self.refused(self.written("lora", {"lora_rank_16.pt": stages[0]}), "no files 0 to 15 of 'lora_rank_*.pt'", USAGE)
        self.refused(self.written("words", {"rerank0.pt": stages[0]}), "the folder holds no checkpoint", USAGE)

    def test_tensors_that_every_rank_has(self):
        more = dict(step=tensor((2,), (1,), key="0", count=12))
        files = self.dtensors((0,), (1,), more=more)
        self.refused(self.written("differ", files), (
            "tensor 'step'", "it is in both rank0.pt and rank1.pt, which do not call it a part, and it differs"))
        self.same(self.values(self.path("differ"), "--exclude", "step"), {"w": self.whole(8, 3)})
        more = dict(step=tensor((2,), (1,), key="0", count=24))
        whole = ranks.torch_file({"w": (self.whole(8, 3), (8, 3), (2,), (0,), [None], "axes")}, more)
        self.same(self.values(self.written("same", {"rank0.pt": whole, "rank1.pt": whole})),
                  {"w": self.whole(8, 3), "step": self.whole(2)})

    def test_attributes_that_differ(self):
        files = {f"rank{at}.pt": ranks.torch_file({"w": (
            self.whole(8, 3)[4 * at:4 * at + 4].copy(), (8, 3), (2,), (at,), [0], "axes")}, dict(rank=number(at), epoch=number(3)))
            for at in (0, 1)}
        self.written("own", files)
        done = self.expect(0, "convert", self.path("own"), "-o", self.path("own.zt"))
        self.assertIn(b"attributes differ between the files of ranks, and the first is kept: 'rank'\n", done.stderr)
        self.assertEqual(read_zt(self.path("own.zt"))["attributes"], {"rank": 0, "epoch": 3, "ztstream.state": {"containers": {}}})

    def test_files_that_do_not_say_their_part(self):
        content = archive(dictionary(w=tensor((4,), (1,))))
        for name in ("model_world_size_2_rank_{}.pt", "consolidated.0{}.pth", "zero_pp_rank_{}_mp_rank_00_optim_states.pt"):
            folder = self.written(name[:4], {name.format(rank): content for rank in (0, 1)})
            self.refused(folder, ("tensor 'w'", "do not say which part of a tensor each has"))
            self.expect(0, "convert", "-f", folder / name.format(1), "-o", self.path("x.zt"), says=(
                "is one of 2 that ranks wrote (" + name[:4], "its tensors may be parts"))
            self.path("x.zt").unlink()
        for rank in (0, 1, 2):
            self.put(f"iter/mp_rank_0{rank}/model_optim_rng.pt", content)
        self.expect(0, "inspect", self.path("iter/mp_rank_01/model_optim_rng.pt"),
                    says="mp_rank_01 is one of 3 that ranks wrote (mp_rank_*)")
        self.put("lora_rank_8.pt", content), self.put("lora_rank_16.pt", content)
        self.assertEqual(self.run_program("inspect", self.path("lora_rank_8.pt")).stderr, b"")

    def test_the_folder(self):
        """What lies beside the files of ranks goes along; they themselves do not, and are not replaced."""
        folder = self.written("model", self.rows((0, 3), (3, 8)) | {"config.json": b"{}", "tokenizer.json": b"[]"})
        self.succeed("convert", folder, "-o", self.path("m.zt"))
        found = read_zt(self.path("m.zt"))
        self.assertEqual(sorted(found["files"]), ["__meta__/files/config.json", "__meta__/files/tokenizer.json"])
        self.assertEqual(found["attributes"], {"DCP_VERSION": "1.0", "format": "pt"})
        self.expect(0, "verify", self.path("m.zt"), "--against", folder)
        self.succeed("extract", self.path("m.zt"), "-o", f"{self.path('back')}/", "--to", "safetensors")
        self.assertEqual(self.entries(self.path("back")), ["config.json", "model.safetensors", "tokenizer.json"])
        self.expect(0, "diff", self.path("back"), folder)
        self.fail_with(2, "extract", "-f", folder, "-o", folder / NAME.format(2), says="it is an input")


    def test_parts_in_zt_files(self):
        """Files in which each rank marked its parts itself."""
        def entry(low, high, **more):
            return {"shape": [high - low, 3], "components": {"data": {"dtype": "f32", "data": self.whole(8, 3)[low:high].tobytes()}},
                    "attributes": {"ztstream.part": {"offsets": [low, 0], **more}}}
        files = [self.put(f"rank{at}.zt", make_zt.encode_1({"w": entry(low, high, shape=[8, 3])}))
                 for at, (low, high) in enumerate([(0, 3), (3, 8)])]
        self.expect(0, "convert", *files, "-o", self.path("w.zt"))
        self.same(self.values(self.path("w.zt")), {"w": self.whole(8, 3)})
        self.expect(0, "verify", files[1])
        self.refused(files[1], "it is one rank's part, at [3, 0], of a tensor of shape [8, 3]")
        for attribute in ({"offsets": [0]}, {"offsets": [0, 0], "shape": [8]}, {"offsets": [0, 0], "more": 1}, {}, "here"):
            self.put("odd.zt", make_zt.encode_1({"w": entry(0, 3) | {"attributes": {"ztstream.part": attribute}}}))
            self.refused(self.path("odd.zt"), "its attribute 'ztstream.part' says no place in a tensor")

    def test_memory_does_not_grow_with_ranks(self):
        if self.sanitized():
            self.skipTest("sanitizers take memory of their own")
        taken = {}
        for count in (4, 64):
            whole = numpy.zeros((64, 16384), "float32")
            folder = self.written(f"of{count}", {
                NAME.format(rank + 1): ranks.safetensors({
                    f"t{at}": ((rank * 64 // count, 0), whole[:64 // count]) for at in range(4)}) for rank in range(count)})
            runs = [self.costs("convert", folder, "-o", self.path("m.zt"), "-f", "--threads", "2") for _ in range(3)]
            self.assertEqual([status for status, _, _ in runs], [0] * 3)
            taken[count] = min(memory for _, _, memory in runs)  # more where a tensor's buffer waits for the next
        self.assertLess(taken[64], taken[4] + 8, taken)
