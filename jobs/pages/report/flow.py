"""The flow of a run as a Sankey diagram: log rows -> queries -> texts -> lists -> hits -> results.

Every node is an exact count. The unit changes from column to column (a query has several texts), so heights are comparable
only within a column; a band that widens shows such a change of unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from jobs.pages.charts import drawing, element
from jobs.pages.report.figures import Figures
from jobs.tables import ORIGINAL
from jobs.terminal.formats import number

HEIGHT = 250.0  # sum of the bars of a column, without gaps
LABEL = 17.0  # least height of a node with its label
GAP = 7.0
COLUMN = 160.0  # from node to node
BAR = 9.0
LAST = 40.0  # additional width for the labels of the last column
TOP = 34.0  # height of the headings
MOST_REASONS = 3

LOST, KEPT, PLAIN = "lost", "kept", "plain"

End = tuple[str, str]  # kind and name of what a planned text became
AS_IT_IS = ("", ORIGINAL)
NOT_SELECTED = (PLAIN, "not selected")
OTHERS = "other reasons"


@dataclass
class Node:
    """A bar with its label. `kind`: LOST, KEPT or PLAIN, a class of the style sheet."""

    label: str
    count: int
    kind: str
    size: float
    x: float = 0.0
    y: float = 0.0
    slot: float = 0.0  # top of its slot, which is at least LABEL high
    out: float = 0.0  # height taken by outgoing bands so far
    into: float = 0.0  # height taken by incoming bands so far

    @property
    def height(self) -> float:
        """Returns the height of the bar, at least 1 if the count is not 0."""
        return max(1.0, self.size) if self.count else 0.0


class Flow:
    """The drawing, `svg`, and heading and nodes of each column: the same as a list, for narrow screens."""

    def __init__(self) -> None:
        """Has no columns."""
        self.columns: list[tuple[str, list[Node]]] = []
        self.links: list[tuple[Node, Node, float, float]] = []  # source, target, height at the source and at the target
        self.svg = Markup()

    @property
    def nodes(self) -> list[Node]:
        """Returns the nodes of all columns."""
        return [node for _, nodes in self.columns for node in nodes]

    def column(self, heading: str, nodes: Iterable[Node]) -> list[Node]:
        """Adds a column; returns its nodes without those that count nothing."""
        shown = [node for node in nodes if node.count]
        self.columns.append((heading, shown))
        return shown

    def link(self, source: Node, target: Node, left: float, right: float | None = None) -> None:
        """Adds a band between two nodes that count something, `left` and `right` high at its ends."""
        if left > 0 and source.count and target.count:
            self.links.append((source, target, left, left if right is None else right))

    def laid_out(self) -> Flow:
        """Returns itself with the drawing."""
        height, headings = 0.0, []
        for place, (heading, nodes) in enumerate(self.columns):
            x, y = COLUMN * place + 1, TOP
            headings.append(element("text", heading, class_="heading", x=x, y="14"))
            for node in nodes:
                room = max(LABEL, node.height)
                node.x, node.slot, node.y = x, y, y + (room - node.height) / 2
                y += room + GAP
            height = max(height, y)
        title = element("title", "From log rows to results; the table below has the same counts", id="flow-title")
        parts = [title, *headings, *(_band(*link) for link in self.links), *map(_bar, self.nodes), *map(_label, self.nodes)]
        width = COLUMN * len(self.columns) + LAST
        self.svg = drawing(width, height, *parts, class_="flow", aria_labelledby="flow-title")
        return self


def flow(figures: Figures) -> Flow:
    """Returns the diagram of the committed shards."""
    planned, queries = figures.run.plan.counts, figures.queries
    drawn = Flow()
    unit = HEIGHT / max(1, planned["log_rows"])
    (log,) = drawn.column("log", [Node("rows", planned["log_rows"], PLAIN, HEIGHT)])
    worked = Node("distinct queries", queries, KEPT, queries * unit)
    others = [
        Node("not committed yet", figures.waiting, PLAIN, figures.waiting * unit),
        Node("repeated", figures.repeated, PLAIN, figures.repeated * unit),
        Node("rejected", planned["rejected"], LOST, planned["rejected"] * unit),
    ]
    for node in drawn.column("queries", [worked, *others]):
        drawn.link(log, node, node.size)
    if not queries:
        return drawn.laid_out()
    lists = _texts_and_lists(figures, drawn, worked)
    _hits_and_results(figures, drawn, lists)
    return drawn.laid_out()


def _texts_and_lists(figures: Figures, drawn: Flow, worked: Node) -> list[Node]:
    """Draws the columns from queries to texts and to the lists of each retriever; returns the nodes of the lists.

    A strategy that gave several texts for a query has a band that widens: from its queries to its texts.
    """
    queries, names = figures.queries, [ORIGINAL, *figures.strategies]
    unit = HEIGHT / (queries * len(names))
    planned = {name: Node(name, queries, KEPT, queries * unit) for name in names}
    for node in drawn.column("planned", planned.values()):
        drawn.link(worked, node, worked.size / len(names), node.size)
    ends: dict[End, Node] = {}
    if figures.strategies:
        flows = _texts(figures)
        counts = dict.fromkeys(_ends(figures, flows), 0)
        for _, became, _, count in flows:
            counts[became] += count
        unit = HEIGHT / max(queries * len(names), sum(counts.values()))
        words = {AS_IT_IS: "as it is", (KEPT, ORIGINAL): "the original instead"}
        ends = {key: Node(words.get(key, key[1]), n, key[0] or KEPT, n * unit) for key, n in counts.items()}
        drawn.column("read as (or no text)", ends.values())
        for name, key, pairs, count in flows:
            if name in planned:
                drawn.link(planned[name], ends[key], planned[name].size * pairs / queries, count * unit)
    else:
        flows, ends = [(ORIGINAL, AS_IT_IS, float(queries), queries)], {AS_IT_IS: planned[ORIGINAL]}
    unit /= len(figures.lists)
    retrievers = {name: Node(name, sum(of.values()), KEPT, sum(of.values()) * unit) for name, of in figures.lists.items()}
    nodes = drawn.column("lists", retrievers.values())
    for key, end in ends.items():
        for name, node in retrievers.items():
            of_texts = figures.routed(name)
            routed = sum(n for one, to, _, n in flows if to == key and key[0] in ("", KEPT) and one in of_texts)
            of_lists = node.count / sum(of_texts.values()) if node.count else 0.0  # below 1 where texts are searched as one
            drawn.link(end, node, routed * unit, routed * unit * of_lists)
    return nodes


def _texts(figures: Figures) -> list[tuple[str, End, float, int]]:
    """Returns strategy, end, number of queries and number of texts of each band; what is not there counts as one text."""
    frequent = _frequent_reasons(figures)
    flows: list[tuple[str, End, float, int]] = [(ORIGINAL, AS_IT_IS, float(figures.queries), figures.queries)]
    for one in figures.rungs:
        flows += [(one.strategy, (KEPT, rung), one.queries * n / one.made, n) for rung, n in one.rungs.items() if n]
        flows += [
            (one.strategy, (LOST, reason if reason in frequent else OTHERS), float(n), n) for reason, n in one.failed.items()
        ]
        if one.not_selected:
            flows.append((one.strategy, NOT_SELECTED, float(one.not_selected), one.not_selected))
    return flows


def _ends(figures: Figures, flows: Sequence[tuple[str, End, float, int]]) -> list[End]:
    """Returns the ends of the bands, from top to bottom."""
    keys = [AS_IT_IS, *((KEPT, rung) for rung in figures.rung_names), NOT_SELECTED]
    keys += [(LOST, reason) for reason in [*_frequent_reasons(figures), OTHERS]]
    used = {end for _, end, _, _ in flows}
    return [key for key in keys if key in used]


def _hits_and_results(figures: Figures, drawn: Flow, lists: list[Node]) -> None:
    """Draws the columns from lists to hits (if runs were kept), fused candidates and results."""
    height = sum(node.size for node in lists)
    results = Node("results", figures.counts["results"], KEPT, height)
    hits = figures.stored.get("runs", (0, 0, 0))[1]
    candidates = figures.candidates
    before, total = lists, 0
    if hits:
        (node,) = drawn.column("hits", [Node("hits", hits, KEPT, height)])
        for one in lists:
            drawn.link(one, node, one.size)
        before, total = [node], hits
    reranked = figures.run.config.rerank.kind != "none"
    if reranked and candidates:
        before = _narrowed(drawn, "fused", before, total, Node("candidates", candidates, KEPT, height), "merged or cut")
        total = candidates
    words = "below the cut" if reranked and candidates else "merged or cut"
    _narrowed(drawn, "results", before, total, results, words)


def _narrowed(drawn: Flow, heading: str, before: list[Node], total: int, node: Node, rest: str) -> list[Node]:
    """Draws a column with a node and the rest of the documents, and returns the node.

    Heights are in the unit of the column before; if its unit differs (total 0), the node has the whole height.
    """
    height = sum(one.size for one in before)
    left = Node(rest, max(0, total - node.count), PLAIN, 0.0)
    if total:
        node.size, left.size = height * node.count / total, height * left.count / total
    drawn.column(heading, [node, left])
    for one in before:
        drawn.link(one, node, one.size * node.size / height if height else 0.0)
        drawn.link(one, left, one.size * left.size / height if height else 0.0)
    return [node]


def _frequent_reasons(figures: Figures) -> list[str]:
    counts: dict[str, int] = {}
    for one in figures.rungs:
        for reason, count in one.failed.items():
            counts[reason] = counts.get(reason, 0) + count
    ordered = sorted(counts, key=lambda reason: (-counts[reason], reason))
    return ordered if len(ordered) <= MOST_REASONS + 1 else ordered[:MOST_REASONS]


def _bar(node: Node) -> Markup:
    return element("rect", class_=node.kind, x=node.x, y=node.y, width=BAR, height=node.height)


def _label(node: Node) -> Markup:
    words = node.label if len(node.label) <= 27 else f"{node.label[:21]}…"
    count = element("tspan", number(node.count), class_="count")
    return element("text", f"{words} ", count, x=node.x + 13, y=node.y + node.height / 2 + 4)


def _band(source: Node, target: Node, left: float, right: float) -> Markup:
    """Returns a band below the earlier ones of `source` and `target`, at least 0.75 wide."""
    x0, x1 = source.x + BAR, target.x
    y0, y1 = source.y + source.out, target.y + target.into
    source.out, target.into = source.out + left, target.into + right
    left, right, middle = max(left, 0.75), max(right, 0.75), (x0 + x1) / 2
    path = (
        f"M{x0:.1f} {y0:.1f}C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        f"V{y1 + right:.1f}C{middle:.1f} {y1 + right:.1f} {middle:.1f} {y0 + left:.1f} {x0:.1f} {y0 + left:.1f}Z"
    )
    return element("path", element("title", f"{source.label} to {target.label}"), class_=target.kind, d=path)
