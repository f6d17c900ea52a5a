"""Read one file as fast as possible until its `attempt` is negative; print what was seen."""

import json
import sys

attempts: list[int] = []
faults: list[str] = []
print("reading", flush=True)
while True:
    with open(sys.argv[1], "rb") as file:
        content = file.read()
    try:
        attempt = json.loads(content)["attempt"]
    except (ValueError, KeyError) as error:
        faults.append(f"{error}: {content[:80]!r}")
        continue
    if attempt < 0:
        break
    if not attempts or attempts[-1] != attempt:
        attempts.append(attempt)
print(json.dumps({"attempts": attempts, "faults": faults}))
