"""The measurements of `troupe bench grammar` for xgrammar, as a line of JSON for each kind of constraint.

usage: compare_xgrammar.py TOKENIZER.JSON FOLDER [SECONDS]
Needs xgrammar, apache-tvm-ffi, typing_extensions, numpy and tokenizers, all installed with `pip install --no-deps`
(seen with 0.2.2, 0.1.15.post2, 4.16.0, 2.4.6, 0.23.3). The package's own import would need torch and transformers; its
compiled core does not, and is loaded alone.
FOLDER: as for compare_llguidance.py, with grammars (ebnf) too. Schemas in open mode with free whitespace, no cache, one
thread, processor time, a mask before every token of the accepted texts and one at the end. Each constraint has a
process of its own and SECONDS (20) of processor time for everything about it; what takes longer counts as timed out,
and its masks up to there are lost. Times include the call from Python, about two microseconds.
"""

import json
import os
import resource
import sys
import types
from importlib.metadata import distribution, version
from pathlib import Path

import numpy
from tokenizers import Tokenizer

from grammar_peers import microseconds, quantiles, rows

package = types.ModuleType("xgrammar")
package.__path__ = [str(distribution("xgrammar").locate_file("xgrammar"))]
sys.modules["xgrammar"] = package
from xgrammar import load_binding  # noqa: E402,F401  (registers the core's types)
from xgrammar.base import _core  # noqa: E402

BYTE_LEVEL = 2  # kind of vocabulary
END_TOKEN = 1


def vocabulary_of(path: str):
    file = json.loads(Path(path).read_text(encoding="utf-8"))
    ids = dict(file["model"]["vocab"])
    ids.update((token["content"], token["id"]) for token in file["added_tokens"])
    texts = [""] * (max(ids.values()) + 1)
    for text, number in ids.items():
        texts[number] = text
    return _core.TokenizerInfo(texts, BYTE_LEVEL, len(texts), [END_TOKEN], False)


def compiled(compiler, row: dict):
    if row["kind"] == "regex":
        return compiler.compile_regex(row["source"])
    if row["kind"] == "ebnf":
        return compiler.compile_grammar_from_strings(row["source"], "root")
    return compiler.compile_json_schema(row["source"], True, None, None, False, None)


def measure(row: dict, vocabulary, tokenizer: Tokenizer) -> dict:
    """What one constraint gave: its times, and whether it judged a text wrongly."""
    found: dict = {"new": [], "used": [], "unsound": False, "over_strict": False}
    start = microseconds()
    try:
        grammar = compiled(_core.GrammarCompiler(vocabulary, 1, False, -1), row)
    except Exception:  # whatever its core throws is a refusal
        found["refused"] = microseconds() - start
        return found
    found["compile"] = microseconds() - start
    found["kb"] = grammar.memory_size_bytes() / 1024
    mask = numpy.zeros((1, (vocabulary.vocab_size() + 31) // 32), dtype=numpy.int32)

    def timed_mask(matcher, into: list[float]) -> None:
        start = microseconds()
        matcher.fill_next_token_bitmask(mask, 0, False)
        into.append(microseconds() - start)

    for kind in ("new", "used"):
        for case in row["cases"]:
            accepted_text = case["expect"] == "accept"
            if kind == "used" and not accepted_text:
                continue
            matcher = _core.GrammarMatcher(grammar, None, False, -1)
            taken = True
            for token in case.get("tokens") or tokenizer.encode(case["text"], add_special_tokens=False).ids:
                if accepted_text:
                    timed_mask(matcher, found[kind])
                if not matcher.accept_token(token, False):
                    taken = False
                    break
            if taken and accepted_text:
                timed_mask(matcher, found[kind])
            accepted = taken and matcher.is_completed()
            found["unsound"] |= accepted and case["expect"] == "reject"
            found["over_strict"] |= not accepted and accepted_text
    return found


def apart(row: dict, vocabulary, tokenizer: Tokenizer, seconds: int) -> dict | None:
    """measure() in a process of its own; None if it took too long or crashed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # its core logs what it does not support
        with os.fdopen(writer, "w") as out:
            json.dump(measure(row, vocabulary, tokenizer), out)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if status == 0 else None


def main() -> None:
    vocabulary, tokenizer = vocabulary_of(sys.argv[1]), Tokenizer.from_file(sys.argv[1])
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    measured: dict[str, dict] = {}
    for row in rows(Path(sys.argv[2]), ("json_schema", "regex", "ebnf")):
        m = measured.setdefault(
            row["kind"],
            {"constraints": 0, "refused": 0, "timed_out": 0, "unsound": 0, "over_strict": 0, "compile": [], "kb": [], "new": [], "used": []},
        )
        m["constraints"] += 1
        found = apart(row, vocabulary, tokenizer, seconds)
        if found is None:
            m["timed_out"] += 1
        elif "refused" in found:
            m["refused"] += 1
            m["compile"].append(found["refused"])
        else:
            for key in ("compile", "kb"):
                m[key].append(found[key])
            for key in ("new", "used"):
                m[key] += found[key]
            for key in ("unsound", "over_strict"):
                m[key] += found[key]
    for kind, m in measured.items():
        print(
            json.dumps(
                {
                    "bench": "grammar",
                    "case": kind,
                    "engine": "xgrammar " + version("xgrammar"),
                    "constraints": m["constraints"],
                    "refused": m["refused"],
                    "timed_out": m["timed_out"],
                    "limit_s": seconds,
                    "unsound_rows": m["unsound"],
                    "over_strict_rows": m["over_strict"],
                    "masks": len(m["new"]),
                    "compile_us": quantiles(m["compile"]),
                    "new_mask_us": quantiles(m["new"]),
                    "used_mask_us": quantiles(m["used"]),
                    "grammar_kb": quantiles(m["kb"]),
                }
            )
        )


main()
