"""Tables and pictures of what bench/compare.py measured: BENCHMARKS.md, benchmarks/details.md, benchmarks/*.svg.

What a person has to say about the figures stands in docs/benchmarks/notes.md, which is put in as it is: what follows the
line DETAILS into details.md.
"""
import pathlib
import re

LIMIT_MIB = 96
DETAILS = "<!-- details -->"
# One look for each contender in every picture; the colours are Okabe and Ito's, told apart by the colour-blind too.
COLORS = {"cp": "#999999", "numpy.save": "#CC79A7", "safetensors (Python)": "#000000", "zstd -1": "#009E73",
          "ztstream": "#0072B2", "ztstream --zstd": "#D55E00", "ztstream --zstd=planes": "#661100",
          "reference": "#56B4E9", "reference --compress": "#F0E442"}
SETTINGS = {"raw": ("ztstream", "o"), "--zstd": ("ztstream --zstd", "s"),
            "--zstd=planes": ("ztstream --zstd=planes", "D")}
# Who is compared with whom: those that copy with cp, those that compress with zstd.
COPIES = ["cp", "numpy.save", "safetensors (Python)", "reference", "ztstream"]
COMPRESSES = ["zstd -1", "reference --compress", "ztstream --zstd", "ztstream --zstd=planes"]


def rate(row):
    return row["input"] / row["median"] / 1e6


def section(results, name):
    """{rest of the step's name: its result} of the steps that have rows."""
    return {step[len(name) + 1:]: value for step, value in results["steps"].items()
            if step.startswith(name + "/") and "rows" in value}


def measured(rows):
    return [row for row in rows if "median" in row]


def worse_than_linear(rows):
    """Steps that cost more than 1.5 times the processor time linear growth would; below a tenth of a second start-up
    is the cost."""
    return [f"{a['at']:,} to {b['at']:,} ({b['cpu'] / a['cpu']:.1f} times the time for {b['at'] / a['at']:.3g} times as much)"
            for a, b in zip(rows, rows[1:])
            if a["cpu"] > 0.1 and b["cpu"] / a["cpu"] > 1.5 * b["at"] / a["at"]]


# ---- tables ------------------------------------------------------------------------------------------------------

def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def verdict(goal):
    value, bound = goal["value"], goal["bound"]
    if (value <= bound) if goal["at_most"] else (value >= bound):
        return "met"
    by = 100 * (value / bound - 1 if goal["at_most"] else 1 - value / bound)
    return f"missed by {by:.0f} %" if by >= 10 else f"missed by {by:.2g} %"


def goals_rows(results):
    """A row for each goal, which ends in whether it is met."""
    rows = []
    for step, result in section(results, "goals").items():
        goals = result["goals"]
        if step == "workers" and (met := [goal for goal in goals if "value" in goal and verdict(goal) == "met"]):
            # Their table is below: one row for those that are met.
            goals = [goal for goal in goals if goal not in met]
            of = sorted({re.search(r"of (\d+) simulated", goal["what"])[1] for goal in met}, key=int)
            rows.append([f"of {' and of '.join(of)} simulated workers, busy: {len(met)} ways", "below", "", "met"])
        for goal in goals:
            bound = f"{'at most' if goal['at_most'] else 'at least'} {goal['bound']}{goal.get('unit', '')}"
            if "missing" in goal:
                rows.append([goal["what"], bound, "", f"not measured: {goal['missing']}"])
            else:
                rows.append([goal["what"], bound, f"{goal['value']:.{6 if 0.999 < goal['value'] < 1.001 else 3}g}{goal['unit']}",
                             "; ".join(filter(None, (verdict(goal), goal["note"])))])
    return rows


def goals_table(rows):
    return table(["goal", "bound", "measured", ""], rows)


def workloads_table(steps):
    """MB of input a second of every contender, a row for each workload and variant."""
    names = [name for name in (*COPIES, *COMPRESSES) if any("median" in row for step in steps.values() for row in step["rows"]
                                                            if row["name"] == name)]
    out = []
    for workload, step in steps.items():
        rows = {row["name"]: row for row in step["rows"]}
        out.append([workload.replace("/", ", "),
                    *(f"{rate(rows[name]):,.0f}" if "median" in rows.get(name, {}) else "" for name in names)])
    return table(["MB/s", *names], out)


def threads_table(steps):
    """MB of input a second of every way, and of one thread's: a row for each way, a column for each number of threads."""
    ways = {}  # the rows of a way, and of an earlier program's, by the number of threads
    for way, step in steps.items():
        for row in measured(step["rows"]):
            count, _, program = row["name"].partition(", ")
            ways.setdefault(", ".join(filter(None, (way, program))), {})[int(count)] = row
    counts = sorted({count for rows in ways.values() for count in rows})
    out = []
    for way, rows in ways.items():
        one = rate(rows[1]) if 1 in rows else None
        out.append([way, *(f"{rate(rows[n]):,.0f}" + (f" · {rate(rows[n]) / one:.2f} ×" if one and n > 1 else "")
                           if n in rows else "" for n in counts)])
    return table(["MB/s", *(f"{n} thread{'s' * (n > 1)}" for n in counts)], out)


def workers_table(rows):
    """Workers kept busy in the simulation."""
    counts = sorted({int(row["workers"]) for row in rows})
    found = {}
    for row in rows:
        found.setdefault((row["name"], row["tensors"]), {})[int(row["workers"])] = row
    return table(["busy, of simulated workers", "tensors", *map(str, counts), "feeds"],
                 [[name, tensors, *(f"{by[n]['busy']:.1f}" if n in by else "" for n in counts),
                   f"{by[counts[-1]]['feeds']:.0f}" if counts[-1] in by else ""] for (name, tensors), by in found.items()])


def main_table(results):
    """What a user asks first: size, and how fast bf16 is written and read again."""
    written = {row["name"]: row for row in measured(section(results, "throughput").get("bf16/warm, synced", {}).get("rows", []))}
    read = {way: max(measured(step["rows"]), key=rate) for way, step in section(results, "threads").items() if measured(step["rows"])}
    out = []
    for option, name in (("", "raw"), ("--zstd", "zstd"), ("--zstd=planes", "planes")):
        if (row := written.get(f"ztstream {option}".strip())) and (back := read.get(f"extract of {name}")):
            # of what is decoded, whatever the size of the file that is read
            out.append([f"`{option}`" if option else "uncompressed", f"{100 * row['output'] / row['input']:.0f} %", f"{rate(row) / 1000:.1f} GB/s",
                        f"{row['input'] / back['median'] / 1e9:.1f} GB/s"])
    return table(["bf16 weights, 1 GB", "size", "written, on the disk", "read, to nowhere"], out) if out else []


def days(results):
    """{day: the steps measured on it}, in order."""
    found = {}
    for name, step in results["steps"].items():
        found.setdefault(step["date"], []).append(name)
    return dict(sorted(found.items()))


def start_of_python(results):
    """What Python takes before it does anything: it is in the rows of programs in Python."""
    rows = measured(results["steps"].get("goals/start", {}).get("rows", []))
    took = next((f"{row['median']:.2f} s here" for row in rows if row["name"].startswith("python3")), "not measured in this sitting")
    return f"Rows of programs in Python include start-up and the import of numpy ({took})."


def picture(pictures, name, text, folder=""):
    return [f"![{text}]({folder}{name}.svg)", ""] if name in pictures else []


def joined(out):
    return "\n".join(out).rstrip("\n") + "\n"


def document(results, pictures, notes):
    """The text of BENCHMARKS.md: what a user asks."""
    first, _, rest = ("\n" + notes).partition("\n## ")
    out = ["# Benchmarks", "", "How fast is it?", "", *main_table(results), *[line for line in [first.strip(), ""] if first.strip()]]
    out += ["## How fast is each way?", "", "Warm: the input is in the page cache, and the output is not synced.", ""]
    out += workloads_table({name: step for name, step in section(results, "throughput").items() if name.endswith("/warm")})
    for name, text in (("throughput", "Throughput of every contender by workload"),
                       ("cache-and-disk", "The same with cold cache and with sync"),
                       ("threads", "Throughput by number of threads: bf16, to nowhere")):
        out += picture(pictures, name, text, "benchmarks/")
    if steps := section(results, "threads"):
        out += threads_table(steps)
    for name, text in (("ratio", "Size of the output against speed, by setting"),
                       ("growth", "Seconds by bytes and by number of tensors: holes, to nowhere"),
                       ("memory", "Peak resident memory by bytes and by number of tensors")):
        out += picture(pictures, name, text, "benchmarks/")
    failed = {name: step["error"] for name, step in results["steps"].items() if "error" in step}
    if failed:
        out += ["## Not measured", ""] + [f"- {name}: {error}" for name, error in failed.items()] + [""]
    rows = goals_rows(results)
    machine = results["machine"]
    out += ["## How was it measured?", "",
            f"By `bench/compare.py` on {' and '.join(days(results))}: {machine.get('processor')}, {machine.get('memory')}, {machine.get('file system')}.",
            f"Figures are medians; ratios move less with the machine than times. {sum(row[-1].startswith('met') for row in rows)} of {len(rows)} goals are met.",
            "[Details](benchmarks/details.md) has all of them, and cold and synced runs.", ""]
    return joined(out + ["## " + rest.strip()] * bool(rest))


def details(results, pictures, notes):
    """The text of benchmarks/details.md: what a developer asks."""
    loads = [step["load"] for step in results["steps"].values()]
    out = ["# Details of the benchmarks", "", "Of [BENCHMARKS](../BENCHMARKS.md). [results.json](results.json) has every row; the words are from `notes.md`.", "",
           "Contenders run in turn, in a random order each time. A later sitting replaces the steps that it measures.", start_of_python(results), ""]
    out += table(["machine", ""], [*((key, str(value).partition(";")[0]) for key, value in results["machine"].items()),
                                   *results["settings"].items(),
                                   ("load average", f"{min(loads)} to {max(loads)}")])
    if len(days(results)) > 1:
        out += table(["day", "measured"], [[day, ", ".join(steps)] for day, steps in days(results).items()])
    out += ["## How fast is each way?", "", "Warm page cache and not synced, unless the row says so.", ""]
    out += workloads_table(section(results, "throughput"))
    if growth := section(results, "growth"):
        worse = [f"{name}: {text}" for name, step in growth.items() for text in worse_than_linear(measured(step["rows"]))]
        out += ["Steps that take more than 1.5 times what linear growth would: " + ("; ".join(worse) or "none") + ".", ""]
    rows = goals_rows(results)
    for title, which in (("met", True), ("missed", False)):
        out += [f"## Which goals are {title}?", "", *goals_table([row for row in rows if row[-1].startswith("met") == which])]
    if rows := results["steps"].get("goals/workers", {}).get("rows"):
        out += ["## What if there were more cores?", "",
                "Work is replaced by sleeps of equal length, to show the cost of scheduling alone (`bench/scaling.cc`).",
                "*busy*: how many workers worked. *feeds*: how many the one thread that hands out the work could keep busy.", ""]
        out += workers_table(rows)
    return joined(out + [notes.strip()])


# ---- pictures ----------------------------------------------------------------------------------------------------

class Pictures:
    def __init__(self, results, folder):
        import matplotlib
        matplotlib.use("svg")
        matplotlib.rcParams.update({"svg.hashsalt": "ztstream", "font.size": 9, "axes.spines.top": False,
                                    "axes.spines.right": False, "axes.titlesize": 10, "axes.titleweight": "bold",
                                    "savefig.facecolor": "white", "svg.fonttype": "none",
                                    "font.family": "sans-serif"})
        from matplotlib import pyplot
        self.pyplot, self.results, self.folder, self.names = pyplot, results, folder, []

    def save(self, name, figure):
        figure.savefig(self.folder / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
        self.pyplot.close(figure)
        self.names.append(name)

    def bars(self, axes, rows, title, widest):
        """One workload: copies above, compressors below, each bar with its rate and its speed beside cp or zstd."""
        rows = {row["name"]: row for row in rows}
        at, places, labels = 0, [], []
        for group in (COPIES, COMPRESSES):
            for name in filter(rows.__contains__, group):
                row = rows[name]
                places.append(at)
                labels.append(name)
                at += 1
                if "error" in row:
                    axes.text(widest * 0.015, places[-1], row["error"].rpartition("Error: ")[2], va="center", fontsize=8)
                    continue
                axes.barh(places[-1], rate(row), 0.8, color=COLORS[name], edgecolor="black", linewidth=0.4)
                low, high = (row["input"] / row[key] / 1e6 for key in ("high", "low"))
                axes.plot([low, high], [places[-1]] * 2, color="black", linewidth=1)
                text = f"{rate(row):,.0f}"
                if name != group[0] and "median" in rows.get(group[0], {}):
                    text += f" · {rows[group[0]]['median'] / row['median']:.2f} × {group[0]}"
                axes.text(high + widest * 0.015, places[-1], text, va="center", fontsize=8)
            at += 0.5
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.set_xlim(0, widest * 1.35)
        axes.set_title(title, loc="left")

    def grid(self, name, columns, panels, title):
        """`panels`: [(title, rows)]; all on one scale."""
        widest = max(row["input"] / row["low"] / 1e6 for _, rows in panels for row in measured(rows))
        lines = -(-len(panels) // columns)
        figure, axes = self.pyplot.subplots(lines, columns, figsize=(5.6 * columns, 2.3 * lines), squeeze=False,
                                            sharex=True)
        for place, (what, rows) in zip(axes.flat, panels):
            self.bars(place, rows, what, widest)
        for place in list(axes.flat)[len(panels):]:
            place.set_visible(False)
        for place in axes[-1]:
            place.set_xlabel("MB of input a second (line: slowest to fastest run)")
        figure.suptitle(title, fontsize=12, x=0.01, ha="left")
        figure.tight_layout(rect=(0, 0, 1, 0.99))
        self.save(name, figure)

    def throughput(self):
        steps = section(self.results, "throughput")
        if warm := [(name.rpartition("/")[0], step["rows"]) for name, step in steps.items() if name.endswith("/warm")]:
            self.grid("throughput", 2, warm, "Throughput by workload, warm page cache, not synced (longer is faster)")
        several = {name.rpartition("/")[0] for name in steps if not name.endswith("/warm")}
        if several:
            panels = [(name.replace("/", ": "), step["rows"]) for name, step in steps.items()
                      if name.rpartition("/")[0] in several]
            self.grid("cache-and-disk", 2, panels, "Warm and cold page cache, with and without waiting for the disk")

    def threads(self):
        steps = section(self.results, "threads")
        if len({row["name"] for step in steps.values() for row in step["rows"] if row["name"].isdigit()}) < 3:
            return  # the table says as much
        figure, axes = self.pyplot.subplots(figsize=(6, 4))
        counts = []
        for setting, step in steps.items():
            rows = [row for row in measured(step["rows"]) if row["name"].isdigit()]
            if not rows or setting not in SETTINGS:
                continue
            name, marker = SETTINGS[setting]
            counts = [int(row["name"]) for row in rows]
            rates = [rate(row) for row in rows]
            axes.plot(counts, rates, marker=marker, color=COLORS[name], label=f"{name}: {rates[-1] / rates[0]:.2f} times "
                      f"with {counts[-1]}")
            axes.plot(counts, [rates[0] * n / counts[0] for n in counts], linestyle=":", color=COLORS[name])
        axes.plot([], [], ":", color="black", label="as many times as threads")
        axes.set_xticks(counts)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("threads")
        axes.set_ylabel("MB of input a second")
        axes.set_title("Scaling with threads, bf16, to nowhere", loc="left")
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        self.save("threads", figure)

    def ratio(self):
        steps = {kind: measured(step["rows"]) for kind, step in section(self.results, "levels").items()}
        if not steps:
            return
        figure, places = self.pyplot.subplots(1, len(steps), figsize=(3.4 * len(steps), 4.5), squeeze=False)
        for (kind, rows), axes in zip(steps.items(), places[0]):
            for who, color, marker in (("ztstream", COLORS["ztstream --zstd"], "s"), ("zstd", COLORS["zstd -1"], "o")):
                mine = sorted(([rate(row), 100 * row["output"] / row["input"], row["name"].removeprefix(who + " ")]
                               for row in rows if row["name"].startswith(who + " ")), reverse=True)
                axes.plot([x for x, _, _ in mine], [y for _, y, _ in mine], marker, color=color, markeredgecolor="black",
                          label="ztstream --zstd=" if who == "ztstream" else "zstd program, level")
                for index, (x, y, text) in enumerate(mine):  # above and below, every other one further away
                    away = 8 + 11 * (index % 2)
                    axes.annotate(text, (x, y), xytext=(0, away if who == "ztstream" else -away - 6),
                                  textcoords="offset points", ha="center", fontsize=8, color=color)
            axes.set_xscale("log")
            axes.margins(x=0.2, y=0.25)
            axes.set_title({"trained": "bf16, of a trained model", "bf16": "bf16, Gaussian", "f16": "f16, Gaussian"}.get(kind, kind), loc="left")
            axes.set_xlabel("MB of input a second")
        places[0][0].set_ylabel("output, % of the input (down is smaller)")
        places[0][-1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        figure.suptitle("Size of the output against speed, by setting", fontsize=12, x=0.01, ha="left")
        figure.tight_layout()
        self.save("ratio", figure)

    def growth(self):
        steps = section(self.results, "growth")
        curves = {key: measured(step["rows"]) for key, step in steps.items() if measured(step["rows"])}
        if not curves:
            return
        for name, value, label in (("growth", lambda row: row["median"], "seconds"),
                                   ("memory", lambda row: row["peak"] / 2**20, "peak resident MiB")):
            figure, axes = self.pyplot.subplots(1, 2, figsize=(11, 4))
            for key, rows in curves.items():
                by_count = int(key == "tensors")
                setting = "raw" if key == "tensors" else key.removeprefix("bytes/")
                who, marker = SETTINGS[setting]
                x, y = [row["at"] for row in rows], [value(row) for row in rows]
                axes[by_count].plot(x, y, marker=marker, color=COLORS[who], label=who)
                if name == "growth" and setting == "raw":
                    axes[by_count].plot(x, [y[-1] * at / x[-1] for at in x], ":", color="black",
                                        label="linear, through the last")
            for place, what in zip(axes, ("bytes of input, in 16 tensors", "tensors of 1 KB")):
                place.set_xscale("log")
                place.set_yscale("log")
                if name == "growth":
                    place.set_ylim(bottom=0.002)
                elif place is axes[0]:
                    place.axhline(LIMIT_MIB, linestyle="--", color="black", linewidth=0.8)
                    place.annotate(f"limit {LIMIT_MIB} MiB", (0.02, LIMIT_MIB),
                                   xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
                                   fontsize=8)
                if name == "memory":
                    place.set_ylim(bottom=4, top=max(200, place.get_ylim()[1]))
                place.set_xlabel(what)
                place.set_ylabel(label)
                if place.get_legend_handles_labels()[0]:
                    place.legend(frameon=False)
            figure.suptitle(("Time" if name == "growth" else "Memory") + " by bytes and by number of tensors: holes, to "
                            "nowhere", fontsize=12, x=0.01, ha="left")
            figure.tight_layout()
            self.save(name, figure)


def write(results, docs):
    """The pages and the pictures, of what there is."""
    folder = docs / "benchmarks"
    names = []
    try:
        pictures = Pictures(results, folder)
        for draw in (pictures.throughput, pictures.threads, pictures.ratio, pictures.growth):
            draw()
        names = pictures.names
    except ImportError:
        print("no new pictures: python3-matplotlib is not installed")
        names = [path.stem for path in folder.glob("*.svg")]
    notes = folder / "notes.md"
    for_users, _, for_developers = (notes.read_text() if notes.exists() else "").partition(DETAILS + "\n")
    pathlib.Path(docs / "BENCHMARKS.md").write_text(document(results, names, for_users))
    pathlib.Path(folder / "details.md").write_text(details(results, names, for_developers))
