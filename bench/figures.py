"""How results are printed: one line each, with the ratio first, because it is what can be compared."""

from collections.abc import Sequence
from statistics import median


def title(text: str) -> None:
    print(f"\n{text}", flush=True)


def ratio(
    what: str, measured: Sequence[float], floor: Sequence[float], unit: str, *, goal: float | None = None, least: bool = False
) -> None:
    """Medians, and whether the goal is met: at most so many times the floor, or at least, where more is better."""
    ours, theirs = median(measured), median(floor)
    quotient = ours / theirs
    verdict = ""
    if goal is not None:
        met = quotient >= goal if least else quotient <= goal
        verdict = f"   goal {'≥' if least else '≤'} {goal:.2f}: {'met' if met else 'MISSED'}"
    spread = f"{min(measured):.4g} to {max(measured):.4g}"
    print(
        f"  {quotient:5.2f} ×  {what}: {ours:.4g} {unit} ({spread}), floor {theirs:.4g} {unit}, {len(measured)} runs{verdict}", flush=True
    )
