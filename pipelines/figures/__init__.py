"""Figures of rows that were processed together: numbers only, from columns only."""
