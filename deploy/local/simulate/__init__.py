"""A whole study in one process, for researchers: the silos' own code, on public or made-up records.

`engine.simulate` walks through the rounds of a study with the learners that agents run, and leaves out what protects
real hospitals from each other: keys, seals, ledgers, network. `groups` are its silos, here or in several processes.
`many` repeats it for many seeds, `engines` computes these in parallel, `keeping` keeps what is done. `silos` says who
holds which records, `data` reads files and refuses a hospital's own, `expected_patients` makes patients up, `command`
is `fedward simulate`. Its noise can be repeated, so it protects nobody: it lives above both sides, where no agent can
import it (docs/simulate.md).
"""
