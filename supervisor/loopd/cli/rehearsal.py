"""`run --dry-run`: what would hold and what would be started, with every program looked up; nothing is begun."""

import os

from loopd.adapters.agreement import Agreement
from loopd.adapters.clock import SystemClock
from loopd.adapters.verifiers.command import CommandVerifiers
from loopd.cli.compose import agent_of, check_terms, open_containers, scope_of


def rehearse(agreed: Agreement) -> int:
    """Print it. Raises `BlockedError` for a program that is missing."""
    goal, terms = agreed.goal, agreed.terms
    verifiers = CommandVerifiers(open_containers(agreed, None), SystemClock(), check_terms(agreed))
    agent = agent_of(agreed)
    scope = scope_of(agreed)
    print(f"{goal.goal}: {(goal.objective.text or '').strip().splitlines()[0]}")
    print(f"contract {terms.contract} ({terms.digest[:12]}), workspace {terms.root}")
    print(f"\nagent {agent.name}: {agent.probe(terms.search_path)}")
    print("\ncriteria, in the order they would be checked:")
    for criterion in goal.criteria:
        print(f"  {criterion.name}: {' '.join(criterion.run or ())}  [{verifiers.locate(criterion)}]")
    print(f"\nprotected: {', '.join((*scope.protect, *scope.named))}, CI files and test-runner configuration")
    print("\nsettings:")
    width = max((len(setting.name) for setting in terms.settings), default=0)
    for setting in terms.settings:
        print(f"  {setting.name:<{width}}  {setting.value}  ({setting.source})")
    print(f"\nnothing was started; to start: loopd run {os.path.relpath(terms.contract)}")
    return 0
