"""A live page of a growing log: `python -m examples.live`; docs/live.md says how it works.

lines.py     what a line of the log says
writer.py    writes a made log of web requests, and its clock
source.py    reads a growing log as an unbounded source
settings.py  the parameters of a run, all public, and where its files are
count.py     the pipeline: log to private releases, on Prism
publish.py   whole ticks at whole seconds, into a file of record
page.py      the page, by server-sent events; page.html, page.css, page.js
metrics.py   the same for Prometheus
"""
