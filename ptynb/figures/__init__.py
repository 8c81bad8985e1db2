"""Figures for screens and papers."""

from ptynb.figures.font_cache import keep_fonts_in_caches

keep_fonts_in_caches()
