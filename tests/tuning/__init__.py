"""Operator tuning."""
