"""The official OpenAI client against a server with verdicts, in an environment that has it. Reads and prints JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter

from openai import OpenAI, __version__


def main() -> None:
    """Ask every prompt whole and streamed, and a chat."""
    asked = json.loads(sys.stdin.read())
    client = OpenAI(base_url=asked["url"], api_key="none")
    counts: Counter[str] = Counter()
    for prompt in asked["prompts"]:
        fields = {"model": asked["model"], "prompt": prompt, "max_tokens": 25, "temperature": 0, "stop": ["\n"]}
        whole = client.completions.create(**fields).choices[0]
        last = [chunk.choices[0] for chunk in client.completions.create(**fields, stream=True) if chunk.choices][-1]
        verdicts = [(choice.model_extra or {}).get("anchorscope") for choice in (whole, last)]
        counts["asked"] += 1
        counts["verdict in the response"] += verdicts[0] is not None
        counts["the same in the stream"] += verdicts[0] == verdicts[1]
    turns = [{"role": "user", "content": "Who wrote Emma?"}]
    chat = client.chat.completions.create(model=asked["model"], messages=turns, max_tokens=8)
    counts["verdict in a chat"] += "anchorscope" in (chat.choices[0].model_extra or {})
    print(json.dumps({"openai": __version__, **counts}))


main()
