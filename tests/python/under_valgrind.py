"""under_valgrind.py [TEST...]: tests of the package under valgrind's memcheck; a fault or a lost block of libztstream is a failure.

Needs valgrind. Names are those of tests here: plain, writing, ... (default: plain package writing capi values); minutes each.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent


def of_forked_child(error, frames):
    """Whether a lost block is what a thread starts from: in a child that was forked before the thread began, nobody takes it."""
    return error.findtext("kind") == "Leak_DefinitelyLost" and "pipeline8PipelineC" in (frames[1].findtext("fn") or "")


def findings(path):
    """A text for each error of a log that libztstream has a part in."""
    text = path.read_text(errors="replace")
    if not text.rstrip().endswith("</valgrindoutput>"):  # of a process that was killed
        text += "</valgrindoutput>"
    for error in xml.etree.ElementTree.fromstring(text).iter("error"):
        frames = error.findall("stack/frame")
        if any("libztstream" in (frame.findtext("obj") or "") for frame in frames) and not of_forked_child(error, frames):
            what = error.findtext("what") or error.findtext("xwhat/text")
            yield "\n".join([f"{error.findtext('kind')}: {what}", *(f"    {f.findtext('fn')}  {f.findtext('obj')}" for f in frames)])


def main(names):
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "ZT_SLOW": "1", "ZT_COUNT": "2"}
    found, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            done = subprocess.run(["valgrind", "--xml=yes", f"--xml-file={folder}/%p.xml", "--leak-check=full", "--num-callers=30",
                                   "--show-leak-kinds=definite", sys.executable, "-B", HERE / f"{name}_test.py"], env=environment,
                                  capture_output=True, text=True, check=False)
            print(name, done.stderr.strip().splitlines()[-1], flush=True)
            if done.returncode:
                failed.append(name)
                print(done.stderr)
        logs = sorted(pathlib.Path(folder).iterdir())
        for log in logs:
            found += findings(log)
    print("\n\n".join(found))
    print(f"{len(logs)} processes, {len(found)} faults of libztstream")
    sys.exit(bool(found or failed or not logs))


if __name__ == "__main__":
    main(sys.argv[1:] or ["plain", "package", "writing", "capi", "values"])
