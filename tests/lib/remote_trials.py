"""Some inputs of a random trial (combinations.py) by their URL, and its output once more into a bucket.

The server is that of remote_server.py, one in each process of the pool. What is random here has a generator of its own, so that
a seed's trial is the same with it and without.
"""
import functools
import random

import remote_server


class Folder:
    """The files of the current trial, as they are when they are asked for."""
    path = None

    def get(self, name):
        file = self.path / name
        return file.read_bytes() if file.is_file() else None


@functools.lru_cache(None)
def server():
    started = remote_server.Server()
    started.files = Folder()
    started.store.buckets["out"] = {}
    return started.__enter__()


class Remote:
    def __init__(self, seed, folder):
        self.rng, self.folder = random.Random(f"{seed} remote"), folder
        self.environment = None  # of the runs; None as long as nothing is remote

    def use(self):
        Folder.path = self.folder
        self.environment = server().environment()
        return server()

    def inputs(self, names):
        """The names, some of files as URLs; folders and pipes stay."""
        if self.rng.random() >= 0.2:
            return names
        return [self.use().url(name) if (self.folder / name).is_file() and self.rng.random() < 0.8 else name for name in names]

    def bucket(self):
        """(the URL of an output, a function that gives what was written there), or None."""
        if self.rng.random() >= 0.2:
            return None
        objects = self.use().store.buckets["out"]
        objects.clear()
        return "s3://out/again.zt", lambda: objects["again.zt"][0]
