"""python -m ztstream: the program."""
from ._program import main

main()
