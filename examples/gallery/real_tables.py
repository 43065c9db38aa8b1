"""Size and evenness on real tables, beside plain structures and peers.

Left, our mean size over that of the best other method in hindsight: left of the line is smaller.
Right, coverage in the worst of five fifths of the prediction, and what perfectly even coverage
would typically show there. Both are figures of benchmarks/RESULTS.md.
"""

from pathlib import Path

from matplotlib import pyplot as plt

text = (Path(__file__).parents[2] / "benchmarks" / "RESULTS.md").read_text()
lines = text.partition("## Real tables")[2].partition("\n## ")[0].splitlines()
head, *rows = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")
]
found = [dict(zip(head, row, strict=True)) for row in rows if len(row) == len(head)]
numbers = sorted(
    (row for row in found if row["even by chance"]), key=lambda row: -float(row["ratio"])
)

_, (left, right) = plt.subplots(1, 2, sharey=True, figsize=(7.2, 4.2))
names = [row["table"] for row in numbers]
left.plot([float(row["ratio"]) for row in numbers], names, "o", color="C0")
left.axvline(1, color="0.2", linestyle="--")
left.set(xlim=(0.5, 1.15), xlabel="mean size, ours over best other")
right.plot([float(row["worst fifth"]) for row in numbers], names, "o", color="C0", label="ours")
right.plot(
    [float(row["even by chance"]) for row in numbers],
    names,
    "|",
    color="0.2",
    markersize=10,
    label="even, by chance",
)
right.axvline(0.9, color="0.2", linestyle="--")
right.set(xlim=(0.68, 0.95), xlabel="coverage in the worst fifth")
right.legend(frameon=False, loc="lower left")
