#!/usr/bin/python3 -B
"""run.py NAME [CLASS[.TEST]...]: runs the tests of tests/e2e/NAME.py, all of them or some."""
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]

if __name__ == "__main__":
    unittest.main(module=sys.argv[1].removesuffix(".py"), argv=sys.argv[1:])
