"""The adaptation test: how controllers come through seven disturbances, on replay.

`disturbances` says what happens and when, `course` what is noted of a run, `serving` serves one,
`oracle` finds whom all are measured against, `judging` turns two courses into the figures of
`eval.adaptation`, `summary` puts seeds together and says what is shown, `telling` prints it.
`python -m eval.adaptation_test` does all of it (`command`).
"""
