"""A report in a real browser: screenshots to look at, and whether what the page does by script works.

    python tests/benchmarks/report_screens.py runs/quickstart-a60b6f529ad1/report.html FOLDER

FOLDER gets the first screen and the whole page at 390,
768 and 1280 pixels, light and dark. Exits with 1 where the page is wider than the screen, a script fails, a table does not sort
or download, or the samples do not follow the order that is chosen. It needs Playwright (`pip install playwright`) and a
Chromium that is on the path.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from pathlib import Path
from typing import Any

SCREENS = {390: 844, 768: 1024, 1280: 860}
SCHEMES = ("light", "dark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    browser = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)
    options.folder.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for width, height in SCREENS.items():
            for scheme in SCHEMES:
                tab = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                tab.on("pageerror", lambda error: faults.append(f"script: {error}"))
                tab.goto(options.page.resolve().as_uri())
                if tab.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                    faults.append(f"wider than {width} pixels")
                tab.screenshot(path=options.folder / f"{width}-{scheme}.png")
                tab.screenshot(path=options.folder / f"{width}-{scheme}-whole.png", full_page=True)
                tab.close()
        tab = chromium.new_page(viewport={"width": 1280, "height": 860})
        tab.goto(options.page.resolve().as_uri())
        faults += [*sorting(tab), *order(tab), *downloads(chromium, options.page.resolve().as_uri())]
        chromium.close()
    print("\n".join(faults) or f"no faults; look at {options.folder}")
    sys.exit(bool(faults))


def sorting(tab: Any) -> list[str]:
    """What is wrong with sorting the stages by their share of the cost."""
    table, words, cell = "cost-by-stage", "share", "td.share"
    shares = f"[...document.querySelectorAll('[data-csv={table}] tbody tr:not(.part) {cell}')].map(c => +c.dataset.v)"
    before = tab.evaluate(shares)
    head = tab.locator(f"[data-csv={table}] thead button", has_text=words)
    seen = []
    for _ in range(3):
        head.click()
        seen.append(tab.evaluate(shares))
    return [] if seen == [sorted(before, reverse=True), sorted(before), before] else [f"sorting: {before} became {seen}"]


def downloads(chromium: Any, page: str) -> list[str]:
    """What is wrong with the CSV files: each has a field for every head, and a line for every row."""
    faults = []
    tables, place = 1, 0
    while place < tables:
        tab = chromium.new_page()  # a tab each: after ten downloads Chromium asks
        tab.goto(page)
        tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        tables = tab.locator("main table").count()
        table = tab.locator("main table").nth(place)
        rows = table.locator("tr").count()
        with tab.expect_download() as download:
            table.locator("button.csv").click()
        name = download.value.suggested_filename
        with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))
        if len(lines) != rows or len({len(line) for line in lines}) != 1:
            faults.append(f"{name}: {len(lines)} lines of {sorted({len(line) for line in lines})} fields for {rows} rows")
        tab.close()
        place += 1
    return faults


def order(tab: Any) -> list[str]:
    """What is wrong with the order of the samples."""
    faults = []
    for choice, name, sign in (("gain", "gain", -1), ("loss", "gain", 1), ("asked", "asked", -1)):
        if tab.locator(f"#order option[value={choice}]").count():
            tab.select_option("#order", choice)
            found = tab.evaluate(f"[...document.querySelectorAll('.sample')].map((one) => one.dataset.{name} ?? null)")
            known = [sign * float(value) for value in found if value is not None]
            if known != sorted(known) or None in found[: len(known)]:
                faults.append(f"order {choice}: {found}")
    return faults


if __name__ == "__main__":
    main()
