"""Rules that only report the use of names; several of them share a file.

    rules = (
        make_notice_rule(
            __name__,
            "channels_last",
            "Point out channels_last. …",
            Notice(("torch.channels_last",), "{name} gains nothing …", "{name} …", status="advice"),
            category="advice",
        ),
    )

A rule that also edits has a file of its own. There `add_notices` adds the names that the rule only reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from typing import Any, Literal

from viaduct.cards.advice import Remark
from viaduct.cards.limits import Risk
from viaduct.migration.rule import Rule, Site

RISKS: tuple[Risk, ...] = ("low", "medium", "high")  # in ascending order
DEFAULT_RISKS: dict[str, Risk] = {"manual": "medium", "advice": "low"}


@dataclass(frozen=True)
class Notice:
    """Names of an API, and the message for each use of one of them. A rule has at most one notice for a name.

    In the message {name} is the qualified name, {last} its last part, {cards} the remarks about the target cards, and
    {card} the first target card, with its fields: {card.title}.
    """

    names: tuple[str, ...]
    english: str
    chinese: str
    status: Literal["manual", "advice"] = "manual"
    risk: Risk | None = None  # None: that of DEFAULT_RISKS; with remarks, their highest risk is used instead
    remarks: Mapping[str, Remark] = field(default_factory=dict)  # sentences about each card, by its name
    uses: tuple[Literal["call", "reference"], ...] = ("call",)  # uses that are reported
    condition: Callable[[Site], bool] | None = None  # only uses for which this is true are reported; None: all

    def report(self, site: Site) -> None:
        if self.condition is not None and not self.condition(site):
            return
        remarks = [self.remarks[card.name] for card in site.cards] if self.remarks else []
        risk = max((remark.risk for remark in remarks), key=RISKS.index, default=self.risk)
        fields = {"name": site.name, "last": site.name.rpartition(".")[2], "card": site.cards[0]}
        english = self.english.format(**fields, cards="; ".join(remark.english for remark in remarks))
        chinese = self.chinese.format(**fields, cards=";".join(remark.chinese for remark in remarks))
        add_finding = site.request_review if self.status == "manual" else site.advise
        add_finding(english, zh=chinese, risk=risk or DEFAULT_RISKS[self.status])


def add_notices(rule: Rule, *notices: Notice) -> Rule:
    """Register handlers in a rule that report each use of the notices' names; return the rule."""
    for notice in notices:
        if "call" in notice.uses:
            rule.call(*notice.names)(notice.report)
        if "reference" in notice.uses:
            rule.reference(*notice.names)(notice.report)
    return rule


def make_notice_rule(module: str, short_name: str, text: str, *notices: Notice, **fields: Any) -> Rule:
    """Return a rule that consists of notices. `text`: its documentation; `fields`: other fields of Rule."""
    return add_notices(Rule(module, short_name=short_name, text=cleandoc(text), runs_last=True, **fields), *notices)
