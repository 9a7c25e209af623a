"""The first seeds of combinations.py: random inputs of every format, random options of every command, every value compared."""
import unittest

import combinations
from support import PROGRAM

SEEDS = range(1, 121)


class Combinations(unittest.TestCase):

    def test_every_seed_is_right(self):
        reports = []
        failed = combinations.run_seeds(PROGRAM, SEEDS, report=lambda text, **_: reports.append(text))
        self.assertEqual(failed, [], "\n".join(reports))
