"""The only place that starts and ends processes.

Two halves. The lean half (`nursery`, `shim`, `channel`, `records`, `procfs`) imports a few cheap standard
modules and runs in the helper that is forked before anything heavy is loaded. The other half (`containers`,
`container`, `launched`, `sweep`, `cgroup`, `bubblewrap`, `faults`, `programs`, `environment`) runs in the
supervisor. Import the module you need; this file imports nothing, so that the lean half stays lean.
"""
