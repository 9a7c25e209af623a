"""convert_shards.py CHECKPOINT OUT.zt COUNT: a task for each shard, then their index.

Here the tasks are processes of this machine. Dask, Ray and Spark hand out the same function: docs/CLUSTER.md.
"""
import functools
import multiprocessing
import subprocess
import sys

import ztstream


def convert_shard(checkpoint, out, count, number):
    """Writes one shard, or keeps it if it is there. Returns what `ztstream convert --json` prints."""
    return ztstream.convert(checkpoint, out, shard=f"{number}/{count}", zstd="planes", threads=1)


def join(out, count):
    """Writes the index when all shards are there."""
    shards = [f"{out.removesuffix('.zt')}-{number:05}-of-{count:05}.zt" for number in range(1, count + 1)]
    subprocess.run([ztstream.program(), "join", "-q", "-f", *shards, "-o", out], check=True)


def main(checkpoint, out, count):
    with multiprocessing.Pool(2) as pool:
        done = pool.map(functools.partial(convert_shard, checkpoint, out, count), range(1, count + 1))
    join(out, count)
    print(f"{out}: {len(done)} shards")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: " + __doc__.partition(":")[0])
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
