"""The report of an evaluation: one HTML file that opens offline, from what lies in a folder."""

from eval.report.writing import write_report

__all__ = ["write_report"]
