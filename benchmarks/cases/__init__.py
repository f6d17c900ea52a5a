"""One module a family of cases: `trials(bench)` to run, `figures(bench, samples)` to judge."""
