"""The measurements of `troupe bench grammar` for llguidance, as a line of JSON for each kind of constraint.

usage: compare_llguidance.py TOKENIZER.JSON FOLDER   (needs llguidance; seen with 1.9.1)
FOLDER: files *.jsonl of rows {kind, source, cases: [{text, expect, tokens}]}, as TROUPE_GRAMMAR_CASES names it. The constraints
are read as the benchmark reads them: schemas in open mode; one thread, processor time, a mask before every token of
the accepted texts and one at the end. Grammars (ebnf) are left out: llguidance has no parser of that notation.
Times include the call from Python, about a microsecond.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from llguidance import LLMatcher, LLTokenizer

from grammar_peers import microseconds, quantiles, rows


def main() -> None:
    tokenizer = LLTokenizer(sys.argv[1])
    measured: dict[str, dict] = {}
    for row in rows(Path(sys.argv[2]), ("json_schema", "regex")):
        m = measured.setdefault(
            row["kind"],
            {"constraints": 0, "refused": 0, "unsound_rows": 0, "over_strict_rows": 0, "compile": [], "new": [], "used": []},
        )
        m["constraints"] += 1
        start = microseconds()
        if row["kind"] == "regex":
            grammar = LLMatcher.grammar_from_regex(row["source"])
        else:
            try:
                grammar = LLMatcher.grammar_from_json_schema(row["source"])
            except ValueError:
                m["refused"] += 1
                continue
        first = LLMatcher(tokenizer, grammar, log_level=0)
        m["compile"].append(microseconds() - start)
        if first.is_error():
            m["refused"] += 1
            continue
        unsound = over_strict = False
        for kind, judge in (("new", True), ("used", False)):
            for case in row["cases"]:
                accepted_text = case["expect"] == "accept"
                if not judge and not accepted_text:
                    continue
                matcher = first.deep_copy()
                ids = case.get("tokens") or tokenizer.tokenize_str(case["text"])
                taken = True
                for token in ids:
                    if accepted_text:
                        start = microseconds()
                        matcher.compute_bitmask()
                        m[kind].append(microseconds() - start)
                    if not matcher.consume_token(token):
                        taken = False
                        break
                if taken and accepted_text:
                    start = microseconds()
                    matcher.compute_bitmask()
                    m[kind].append(microseconds() - start)
                accepted = taken and matcher.is_accepting()
                if judge:
                    unsound |= accepted and case["expect"] == "reject"
                    over_strict |= not accepted and accepted_text
        m["unsound_rows"] += unsound
        m["over_strict_rows"] += over_strict
    for kind, m in measured.items():
        print(
            json.dumps(
                {
                    "bench": "grammar",
                    "case": kind,
                    "engine": "llguidance " + version("llguidance"),
                    "constraints": m["constraints"],
                    "refused": m["refused"],
                    "unsound_rows": m["unsound_rows"],
                    "over_strict_rows": m["over_strict_rows"],
                    "masks": len(m["new"]),
                    "compile_us": quantiles(m["compile"]),
                    "new_mask_us": quantiles(m["new"]),
                    "used_mask_us": quantiles(m["used"]),
                }
            )
        )


main()
