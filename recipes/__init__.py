"""Recipes that people run, as package data."""
