"""lint_modules.py: every module's imports are its DEPS, and the table in docs/ARCHITECTURE.md says the same.

CMake passes on what a dependency depends on, so an import that DEPS lack does build. This finds it, and DEPS that nothing
imports. Prints "file: what" for each departure; tests/lint.sh calls it.
"""
import pathlib
import re
import sys

IMPORT = re.compile(r"^(?:export )?import ([a-z][a-z0-9_.]*);", re.M)
LISTS = ("INTERFACE", "INTERNAL", "SOURCES", "PLAIN", "DEPS", "PUBLIC", "PRIVATE")


def targets(folder):
    """{module's target: (its source files, its DEPS)} of a folder's CMakeLists.txt."""
    text = re.sub(r"#.*", "", (folder / "CMakeLists.txt").read_text())
    found = {}
    for name, body in re.findall(r"\bzt_module\((\w+)([^)]*)\)", text):
        words, lists = "", {key: [] for key in LISTS}
        for word in body.split():
            words = word if word in LISTS else words
            if word not in LISTS:
                lists[words].append(word)
        files = [folder / word for key in ("INTERFACE", "INTERNAL", "SOURCES") for word in lists[key]]
        # A module may be written down twice, with what an option adds and without.
        before = found.get("zt_" + name, ([], set()))
        found["zt_" + name] = (before[0] + files, before[1] | set(lists["DEPS"]))
    return found


def target_of(module):
    """zt.convert.npy is the target zt_convert_npy, and zt is zt_all."""
    return "zt_all" if module == "zt" else module.replace(".", "_")


def module_of(target):
    return "zt" if target == "zt_all" else target.replace("_", ".")


def table(path):
    """{target: targets} of the rows "| `zt.a` | `zt.b`, `zt.c` | ..." of a page."""
    rows = re.findall(r"^\| `(zt[\w.]*)` \| ((?:`zt[\w.]*`(?:, )?)*|nothing) \|", path.read_text(), re.M)
    return {target_of(name): {target_of(each) for each in re.findall(r"`([\w.]+)`", imports)} for name, imports in rows}


def main(root):
    page = root / "docs/ARCHITECTURE.md"
    drawn, seen = table(page), set()
    for folder in root / "modules", root / "converters", root / "capi", root / "cli":
        where = f"{folder.name}/CMakeLists.txt"
        for target, (files, deps) in targets(folder).items():
            if target == "zt_std":
                continue
            seen.add(target)
            imported = {}
            for file in files:
                for module in IMPORT.findall(file.read_text()):
                    imported.setdefault(target_of(module), file.relative_to(root))
            imported.pop("zt_std", None)  # every module has it
            imported.pop(target, None)  # a unit of a module may import its own interface
            for dep in sorted(set(imported) - deps):
                print(f"{imported[dep]}: it imports {module_of(dep)}, which is not among the DEPS of {target}")
            for dep in sorted(deps - set(imported)):
                print(f"{where}: {target} has {dep} among its DEPS, and no file of it imports {module_of(dep)}")
            if "zt_cli" in deps:
                print(f"{where}: {target} has the program, zt_cli, among its DEPS: a library stands on no program")
            if target not in drawn:
                print(f"{page.relative_to(root)}: the table of imports lacks {module_of(target)}")
            elif drawn[target] != deps:
                print(f"{page.relative_to(root)}: {module_of(target)} differs from its DEPS in "
                      + ", ".join(module_of(dep) for dep in sorted(drawn[target] ^ deps)))
    for target in sorted(set(drawn) - seen):
        print(f"{page.relative_to(root)}: there is no module {module_of(target)}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
