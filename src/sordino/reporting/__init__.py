"""Showing promise, spend and audit: summary (a plain dict), then figures, then one page."""

from sordino.reporting.html import render_report
from sordino.reporting.result import calibration_bins
from sordino.reporting.summary import summarize

__all__ = ["calibration_bins", "render_report", "summarize"]
